"""The supervisor's socket: requests, responses, and malformed messages."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from controller.apps.up.control import SOCKET, Answer, Question, ask, prepare_run, serving
from controller.apps.up.errors import UpError
from controller.apps.up.values import DaemonState, Health, State, UpState
from dataplane.daemon.notify import notify

DAEMON = DaemonState("collector", State.READY, 7, 1.0, 0, None, {"feed": "unix:x"}, Health(ok=True, text="fine"))
STATE = UpState("abilene", "virtual", "/s", 6, (DAEMON,))


def test_a_state_crosses_the_socket(tmp_path: Path) -> None:
    async def use() -> None:
        socket = tmp_path / SOCKET

        async def answer(question: Question) -> Answer:
            return Answer(state=STATE) if question.ask == "status" else Answer(error="not now")

        async with serving(socket, answer):
            assert stat.S_IMODE(socket.stat().st_mode) == 0o600
            assert (await ask(socket, Question("status"))).state == STATE
            with pytest.raises(UpError, match="not now"):
                await ask(socket, Question("down"))
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b'{"ask": "everything"}\n')
            assert b"not a request" in await reader.readline()
            writer.close()
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"[" * 1020 + b"\n")
            assert b"not a request" in await reader.readline()
            writer.close()
            reader, writer = await asyncio.open_unix_connection(socket)
            writer.write(b"x" * 5000 + b"\n")
            assert await reader.read() == b""
            writer.close()
            assert (await ask(socket, Question("status"))).state == STATE
        with pytest.raises(UpError, match="no `millrace up` is running"):
            await ask(socket, Question("status"))

    asyncio.run(use())


def test_green_is_ready_and_healthy() -> None:
    assert STATE.is_green
    ill = DaemonState("paths", State.READY, 8, 1.0, 0, None, {}, Health(ok=False, text="no answer"))
    assert not UpState("abilene", "virtual", "/s", 6, (DAEMON, ill)).is_green
    dead = DaemonState("paths", State.WAITING, None, 1.0, 3, "killed by SIGKILL", {}, Health(ok=True, text=""))
    assert not dead.is_green


def test_a_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(UpError, match="is open to others"):
        prepare_run(tmp_path / "open")
    with pytest.raises(UpError, match="longer than the 107 bytes"):
        prepare_run(tmp_path / ("x" * 100))


def test_service_manager_is_notified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket  # noqa: PLC0415

    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"
