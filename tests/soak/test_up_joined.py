"""`millrace up` joins switches that run already, of a fabric that is none of its own, and again when they come back.

Meanwhile daemons of it are killed: all is green again, and nothing is lost. tests/soak/up.py kills each, many times.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from controller.apps.up.plan import make_plan
from controller.apps.up.settings import UpSettings
from controller.apps.up.state import StateFolder
from controller.apps.up.values import UpState
from controller.common.errors import ControllerError
from dataplane.config import load
from tests.soak.up import START_S, ApiWriter, Kept, Running, kill, running
from tests.waiting import wait_until

TOPOLOGY = """\
millrace: 1
name: pair
collector: {host: c1}
defaults: {link: {rate: 10 Mbit/s, delay: 1 ms}, access: {rate: 10 Mbit/s, delay: 1 ms}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: c1, switch: s1}]
links: [{a: s1, b: s2}]
"""


KILLED = ("collector", "controller", "api")


@contextmanager
def fabric(folder: Path, reports: int) -> Iterator[None]:
    """Run the switches of the topology independently while the block lasts; then kill them."""
    settings = {
        "topology": str(folder / "pair.yaml"),
        "switches": str(folder / "switches"),
        "reports": f"127.0.0.1:{reports}",
        "demands": str(folder / "demands.csv"),
    }
    (folder / "demands.csv").write_text("bit/s,h1,h2\nh1,0,400000\nh2,200000,0\n", encoding="utf-8")
    (folder / "fabric.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "controller.apps.cli",
        "fabric",
        "serve",
        "--settings",
        str(folder / "fabric.yaml"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=folder, env={**os.environ})
    try:
        ready = folder / "switches" / "s2.sock"
        wait_until(lambda: process.poll() is not None or ready.exists(), "the fabric is not ready")
        assert process.poll() is None
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def health(up: Running, daemon: str) -> str:
    """Return a daemon's health text; empty if the supervisor of a busy machine does not answer in time."""
    state = up.status()
    return "" if state is None else next(entry.health.text for entry in state.daemons if entry.name == daemon)


def until_joined(up: Running) -> UpState:
    """Return the state once both switches are reconciled and links are measured."""
    state = up.until_green(START_S)
    wait_until(lambda: "2 of 2 switches reconciled" in health(up, "controller"), "the switches are not reconciled")
    measured = re.compile(r", [1-9]\d* of \d+ links measured")
    wait_until(lambda: measured.search(health(up, "collector")) is not None, "nothing is measured")
    return state


@pytest.mark.slow
def test_running_switches_are_rejoined_after_any_kill(tmp_path: Path) -> None:
    (tmp_path / "pair.yaml").write_text(TOPOLOGY, encoding="utf-8")
    addresses = {name: f"unix:{tmp_path}/switches/{name}.sock" for name in ("s1", "s2")}
    more = yaml.safe_dump({"switches": addresses})
    with running(tmp_path, str(tmp_path / "pair.yaml"), "virtual", more=more) as up:
        wait_until(lambda: up.process.poll() is not None or up.status() is not None, "the supervisor does not answer")
        port = load(up.state.settings, UpSettings).collector.udp_port
        assert port is not None
        with fabric(tmp_path, port):
            state = until_joined(up)
            before, writer = Kept.of(up), ApiWriter(str(up.socket.parent / "api.sock"))
            with writer.writing():
                for daemon in KILLED:
                    kill(up, daemon, START_S)
            assert before.lost(Kept.of(up)) + writer.lost() == []
            assert writer.acknowledged
        assert "fabric" not in {daemon.name for daemon in state.daemons}
        wait_until(lambda: "0 of 2 switches reconciled" in health(up, "controller"), "their death is not seen")
        with fabric(tmp_path, port):
            again = until_joined(up)
        assert {daemon.name for daemon in again.daemons if daemon.restarts} == set(KILLED)


def test_switches_without_address_are_named_before_starting(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    settings = UpSettings(topology="leaf-spine", run=str(tmp_path), switches={"leaf1": "127.0.0.1:9559"})
    with pytest.raises(ControllerError, match="switches: switch spine1 of leaf-spine has no address"):
        make_plan(settings, state)
