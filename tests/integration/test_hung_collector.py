"""A collector that hangs, with a path server that notices: real processes, on loopback."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.common.errors import PathError
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from tests.waiting import HANG_S, wait_until

BOUND_S = 60.0
TOPOLOGY = """
millrace: 1
name: pair
collector: {host: c1}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: c1, switch: s2}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 2 ms}]
defaults: {access: {rate: 100 Mbit/s, delay: 10 us}}
"""
COLLECTOR = """
topology: {folder}/pair.yaml
receiver: {{address: 127.0.0.1, udp_port: 0}}
feed: {{address: "unix:{folder}/collector.sock"}}
"""
PATHS = """
topology: {folder}/pair.yaml
feed: "unix:{folder}/collector.sock"
listen: "unix:{folder}/paths.sock"
flows: [{{src: h1, dst: h2}}]
"""


class Daemon:
    """A daemon that keeps its log."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "controller.apps.cli", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(self.process.stderr)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(HANG_S)
        finally:
            self.process.kill()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition of real processes, which may answer slowly on a busy machine."""
    wait_until(lambda: _holds(condition), limit_s=BOUND_S, poll_s=0.05)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except PathError as error:
        if "cannot connect" not in str(error):
            raise
        return False


def status_at(folder: Path) -> PathServerStatus:
    async def ask() -> PathServerStatus:
        async with RouteClient(RouteClientSettings(address=f"unix:{folder}/paths.sock")) as client:
            return await client.status()

    return asyncio.run(ask())


@contextmanager
def daemons() -> Iterator[tuple[Path, Daemon, Daemon]]:
    """Yield a folder with sockets, a collector and a path server that listen there."""
    with TemporaryDirectory(prefix="hung") as name:
        folder = Path(name)
        for file, text in (("pair", TOPOLOGY), ("collector", COLLECTOR.format(folder=folder))):
            (folder / f"{file}.yaml").write_text(text, encoding="utf-8")
        (folder / "paths.yaml").write_text(PATHS.format(folder=folder), encoding="utf-8")
        collector = Daemon("collector", "serve", "-s", f"{folder}/collector.yaml")
        try:
            until(lambda: any("ready" in line for line in collector.lines))
            paths = Daemon("paths", "serve", "-s", f"{folder}/paths.yaml")
            try:
                until(lambda: any("ready" in line for line in paths.lines))
                yield folder, collector, paths
            finally:
                paths.stop()
        finally:
            collector.stop()


def why(folder: Path) -> tuple[str, str]:
    """Return what `millrace paths explain h1 h2` prints, on stdout and on stderr."""
    done = CliRunner().invoke(app, ["paths", "explain", "h1", "h2", "--server", f"unix:{folder}/paths.sock"])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.mark.slow
def test_stopped_collector_is_reported_silent_with_old_figures() -> None:
    with daemons() as (folder, collector, paths):
        until(lambda: status_at(folder).last_step_ns is not None)
        shown, warned = why(folder)
        assert "now" in shown
        assert warned == ""
        collector.process.send_signal(signal.SIGSTOP)
        until(lambda: status_at(folder).feed_is_silent)
        until(lambda: (status_at(folder).snapshot_age_ns or 0) > 1_500_000_000)
        before = status_at(folder).last_step_ns
        shown, warned = why(folder)
        assert "now" not in shown
        assert " s ago" in shown
        assert warned.startswith("the collector's feed is silent: figures are ")
        assert status_at(folder).last_step_ns == before
        collector.process.send_signal(signal.SIGCONT)
        until(lambda: not status_at(folder).feed_is_silent)
        until(lambda: (status_at(folder).last_step_ns or 0) > (before or 0))
        log = "".join(paths.lines)
        assert log.count("the collector's feed is silent") == 1
        assert log.count("the collector's feed recovered") == 1
