"""The daemons' skeleton: ready line, stopping, and what SIGHUP applies."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dataplane.config import Strict
from dataplane.daemon import Daemon, Lifecycle, Reload
from dataplane.errors import ConfigError, FabricError
from tests.waiting import finish_within, until


class Settings(Strict, frozen=True):
    """A daemon's settings."""

    level: int = 0
    address: str = "here"


Life = Lifecycle[Settings]


def run(path: Path, work: Callable[[Settings, Life], Awaitable[None]]) -> list[str]:
    """Run a daemon named test with this work; return its lines."""
    lines: list[str] = []

    async def serve(settings: Settings, lifecycle: Life) -> None:
        await finish_within(work(settings, lifecycle), 20)

    Daemon("test", Settings, serve).run(path, lines.append)
    return lines


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "test.yaml"
    path.write_text("level: 1\n")
    return path


def test_ready_line_reaches_the_service_manager(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(settings: Settings, lifecycle: Life) -> None:
        lifecycle.ready(f"level {settings.level}")
        os.kill(os.getpid(), signal.SIGTERM)
        await lifecycle.stop.wait()

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert run(file, work) == ["ready: level 1"]
        assert manager.recv(100) == b"READY=1"


def test_sighup_applies_settings_or_changes_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    applied = asyncio.Queue[int]()

    async def apply(settings: Settings) -> str:
        if settings.level > 5:
            raise FabricError("level 6 is too high")
        applied.put_nowait(settings.level)
        return f"level {settings.level}"

    async def hang_up(text: str, line: str) -> None:
        file.write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: line in caplog.messages, lambda: caplog.messages)

    async def work(_: Settings, lifecycle: Life) -> None:
        lifecycle.reload(Reload(apply, "settings stay as they were", keys=("level",)))
        await hang_up("level: 2\naddress: there\n", "restart required for: address")
        await hang_up("level: 6\n", "settings stay as they were: level 6 is too high")
        await hang_up("levle: 1\n", f"settings stay as they were: {file}:1: levle: unknown key; did you mean `level`? "
                      "(known: level, address)")  # fmt: skip

    assert run(file, work) == []
    assert (applied.get_nowait(), applied.empty()) == (2, True)
    levels = {record.message: record.levelname for record in caplog.records}
    assert levels["level 2"] == "INFO"
    assert levels["settings stay as they were: level 6 is too high"] == "WARNING"


def test_sighup_is_ignored_without_a_reload(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work(_: Settings, __: Life) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: "SIGHUP has no effect: settings are read at startup" in caplog.messages)

    run(file, work)


def test_a_bug_while_reloading_ends_the_daemon(file: Path) -> None:
    def apply(_: Settings) -> str:
        raise ZeroDivisionError

    async def work(_: Settings, lifecycle: Life) -> None:
        lifecycle.reload(Reload(apply, "unchanged"))
        os.kill(os.getpid(), signal.SIGHUP)
        await lifecycle.stop.wait()

    with pytest.raises(ZeroDivisionError):
        run(file, work)


def test_invalid_settings_keep_a_daemon_from_starting(file: Path) -> None:
    file.write_text("level: high\n")

    async def work(_: Settings, __: Life) -> None:
        raise AssertionError

    with pytest.raises(ConfigError, match=r"test\.yaml:1: level: "):
        run(file, work)
