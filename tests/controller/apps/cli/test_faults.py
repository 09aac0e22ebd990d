"""Failures around a command, each reported in one line: outputs, limits, permissions, other programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli import main
from controller.apps.cli.app import app
from controller.apps.cli.shared import common
from controller.common.console import plain_or_terminal
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import fabric_program, load_schema
from dataplane.clock import VirtualClock
from dataplane.store.client import StoreClient
from dataplane.store.errors import StoreError
from dataplane.store.producer import Producer
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from tests.waiting import HANG_S, wait_until

Fails = Callable[..., tuple[int | str | None, str]]
ROOT = Path(__file__).parents[4]
runner = CliRunner()


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fails:
    """Return a function that runs a failing command in this process and returns its exit status and last line."""

    def run(*arguments: str) -> tuple[int | str | None, str]:
        monkeypatch.setattr("sys.argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        errors = capsys.readouterr().err
        assert "Traceback" not in errors
        return end.value.code, errors.strip().splitlines()[-1]

    return run


def test_an_output_that_cannot_be_written_is_named(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"x")
    with Producer(":memory:", address="127.0.0.1", port=0) as producer:
        where = ("--server", "127.0.0.1", "--port", str(producer.address[1]))
        assert runner.invoke(app, ["store", "put", "/a", str(tmp_path / "value"), *where]).exit_code == 0
        message = "millrace: /proc/x: No such file or directory"
        assert fails("store", "get", "/a", *where, "--out", "/proc/x") == (1, message)
        code, _ = fails("store", "get", "/a", *where, "--out", str(tmp_path / "none" / "x"))
        assert code == 2


def test_an_output_that_takes_no_more_is_one_line() -> None:
    command = [sys.executable, "-m", "controller.apps.cli", "topology", "list"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"millrace: output: No space left on device\n")


@pytest.mark.parametrize("deadline", ["nan", "inf", "-1", "0"])
def test_a_deadline_is_a_time(fails: Fails, deadline: str) -> None:
    code, _ = fails("store", "get", "/a", "--server", "127.0.0.1", "--deadline-s", deadline)
    assert code == 2
    with pytest.raises(StoreError, match=r"deadline .* is not above 0"):
        StoreClient("127.0.0.1", deadline_s=float(deadline))


def test_a_port_is_in_range(fails: Fails) -> None:
    code, _ = fails("nic", "watch", "lo", "--metrics-port", "99999")
    assert code == 2


def test_content_of_a_switch_with_another_program_is_one_line(fails: Fails, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s1.sock"

    async def fill() -> None:
        session = GrpcSession(Target("s1", address, 1), load_schema(*fabric_program()))
        await session.connect()
        await session.install_pipeline()
        await session.close()

    with P4RuntimeServer(P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock())), [address]):
        message = f"millrace: switch {address}: read: it has no program with tables"
        assert fails("store", "names", address) == (1, message)
        asyncio.run(fill())
        message = f"millrace: switch {address}: read: it runs another program, which has no table "
        assert fails("store", "counters", address)[1].startswith(message)


def test_a_folder_without_a_history_is_no_empty_table(fails: Fails, tmp_path: Path) -> None:
    code, line = fails("telemetry", "query", "select * from links", "--history", str(tmp_path))
    assert (code, line) == (1, f"millrace: {tmp_path}: no collector has written a history here")


def test_kernel_demo_reports_first_that_it_needs_root(
    fails: Fails, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, line = fails("demo", "--time", "kernel", "--out", str(tmp_path / "out"))
    assert code == 1
    assert "needs root" in line
    assert not (tmp_path / "out").exists()


def test_long_work_reports_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common, "_PROGRESS_S", 0.01)
    lines: list[str] = []
    monkeypatch.setattr("typer.echo", lambda line, err: lines.append(line))
    with common.working("reading fat-tree:k=100"):
        wait_until(lambda: len(lines) > 1, "no progress is said")
    assert lines[0].startswith("millrace: reading fat-tree:k=100: ")
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_slow_command_shows_progress_on_terminals_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(common, "_PROGRESS_S", 0.01)
    asked = threading.Event()

    @common.slow("tuning")
    def command(form: str) -> str:
        asked.wait(HANG_S)
        return form

    master, end = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as seen, os.fdopen(end, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        thread = threading.Thread(target=command, args=("json",))
        thread.start()
        assert seen.read(1 << 10).startswith(b"millrace: tuning: 0 s")
        asked.set()
        thread.join()
    monkeypatch.undo()
    assert command(form="csv") == "csv"
    assert capsys.readouterr().err == ""


def test_columns_set_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert plain_or_terminal().width >= 140
    monkeypatch.setenv("COLUMNS", "60")
    assert plain_or_terminal().width == 60
