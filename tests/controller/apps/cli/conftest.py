"""Commands as typed by a user, against a server in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import io
import queue
import shlex
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.sessions import frames
from controller.apiserver.sessions.frames import Frame, Stream
from controller.apiserver.sessions.values import PodSessionRequest, SessionKind
from controller.apiserver.settings import ApiSettings, StoragePlace
from controller.apps.cli import main
from tests.controller.apiserver.session_node import answering
from tests.waiting import HANG_S


class Run(Protocol):
    """Runs a command line; returns its stdout and stderr."""

    def __call__(self, line: str, typed: str = "") -> tuple[str, str]: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Place]:
    """Serve from a thread and answer for node h1; return the socket's path."""
    lines: queue.Queue[Callable[[], object]] = queue.Queue()
    address = Place(f"unix:{tmp_path}/api.sock")
    settings = ApiSettings(storage=StoragePlace(sqlite=str(tmp_path / "db")), listen=(address.address,))

    async def run() -> None:
        stop, loop, ready = asyncio.Event(), asyncio.get_running_loop(), asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(serve(settings, stop, lambda _: ready.set()))
            await ready.wait()
            async with ApiClient(address) as client, answering(client, "h1", lambda request: _answer(client, request)):
                lines.put(lambda: loop.call_soon_threadsafe(stop.set))
                await stop.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    stop = lines.get(timeout=HANG_S)
    yield address
    stop()
    thread.join()


async def _answer(client: ApiClient, request: PodSessionRequest) -> AsyncIterator[Frame]:
    """Answer as a node with a log of four lines and a command that echoes its input and exits with 7."""
    if request.kind is SessionKind.LOGS:
        if request.container == "broken":
            yield frames.error_frame("container broken has no log")
            return
        for number in range(4 - (4 if request.tail is None else request.tail), 4):
            yield Frame(Stream.STDERR if number == 3 else Stream.STDOUT, f"line {number}\n".encode())
        yield frames.exit_frame(0)
        return
    size = request.terminal
    yield Frame(Stream.STDOUT, f"{' '.join(request.command)}{'' if size is None else ' on a terminal'}\r\n".encode())
    if request.stdin:
        async for frame in client.session_input("h1", request.number):
            if frame.stream is Stream.END_OF_INPUT or frame.payload == b"\x04":
                break
            if frame.stream is Stream.RESIZE:
                resized = frames.resize_of(frame)
                yield Frame(Stream.STDOUT, f"{resized.rows}x{resized.columns}\r\n".encode())
            elif frame.stream is Stream.STDIN:
                yield Frame(Stream.STDOUT, b"got " + frame.payload.hex(" ").encode() + b"\r\n")
    yield frames.exit_frame(7)


@pytest.fixture
def run(served: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line; return its stdout and stderr."""
    monkeypatch.setenv("MILLRACE_API", served.address)
    monkeypatch.setenv("COLUMNS", "140")

    def run(line: str, typed: str = "") -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["millrace", *shlex.split(line)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with contextlib.suppress(SystemExit):
            main()
        captured = capsys.readouterr()
        return captured.out, captured.err

    return run
