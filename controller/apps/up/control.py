"""The supervisor's own socket: one line with the request, one line with the answer (JSON).

A UNIX socket in a folder that only its user can enter, so nothing here authenticates.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from controller.apps.up.errors import UpError
from controller.apps.up.values import UpState
from dataplane.local.deadline import local_timeout
from dataplane.malformed import MALFORMED
from dataplane.rpc.own_folder import is_own_peer, prepare

SOCKET: Final = "up.sock"
_MOST_BYTES: Final = 1 << 22
_ASK_S: Final = 5.0
_ANSWER_S: Final = 10.0
_MOST_CLIENTS: Final = 32
_PATH_BYTES: Final = 107


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Request to the supervisor."""

    ask: Literal["status", "down", "reload", "restart"]
    daemon: str = ""
    """The daemon to restart."""


class Answer(msgspec.Struct, frozen=True):
    """Answer of the supervisor."""

    state: UpState | None = None
    error: str | None = None
    took_s: float | None = None
    """Time until a restarted daemon was ready."""


Answering = Callable[[Question], Awaitable[Answer]]


def prepare_run(run: Path) -> Path:
    """Make the folder of sockets, and return the supervisor's; raise UpError if others could access it."""
    for folder in (run.parent, run) if run.parent.name == "millrace" else (run,):
        problem = prepare(folder)
        if problem is not None:
            raise UpError(f"run: {problem}")
    socket = run / SOCKET
    if len(os.fsencode(socket)) > _PATH_BYTES:
        raise UpError(f"run: {socket} is longer than the {_PATH_BYTES} bytes that a socket's path may have")
    return socket


@asynccontextmanager
async def serving(socket: Path, answering: Answering) -> AsyncIterator[None]:
    """Answer at a socket while the block lasts; a dead supervisor's socket is replaced."""
    clients: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        clients.add(task)
        try:
            if len(clients) <= _MOST_CLIENTS and is_own_peer(writer.get_extra_info("socket")):
                await _converse(reader, writer, answering)
        except (OSError, TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            pass  # the client has gone, or sent no line: there is nobody to answer
        finally:
            clients.discard(task)
            writer.close()

    with suppress(FileNotFoundError):
        socket.unlink()
    # A socket's mode follows the umask, so that nobody else may connect, even for a moment.
    mask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(serve, socket, limit=1024)
    except OSError as error:
        raise UpError(f"{socket}: {error.strerror or error}") from error
    finally:
        os.umask(mask)
    try:
        yield
    finally:
        # First: whoever waits until nobody listens finds nothing left.
        socket.unlink(missing_ok=True)
        server.close()
        for task in clients:
            task.cancel()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answering: Answering) -> None:
    async with asyncio.timeout(_ASK_S):
        line = await reader.readuntil(b"\n")
    try:
        question = msgspec.json.decode(line, type=Question)
    except MALFORMED as error:
        answer = Answer(error=f"not a request: {error}")
    else:
        answer = await answering(question)
    writer.write(msgspec.json.encode(answer) + b"\n")
    async with asyncio.timeout(_ASK_S):
        await writer.drain()


async def ask(
    socket: Path, question: Question, *, answer_s: float = _ANSWER_S, until_gone_s: float | None = None
) -> Answer:
    """Return a supervisor's answer; raise UpError if none runs, or if it refuses.

    With `until_gone_s` return when it has ended; raise UpError if it has not by then.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=_MOST_BYTES)
    except OSError as error:
        raise UpError(f"no `millrace up` is running ({socket}: {error.strerror or error})") from error
    try:
        writer.write(msgspec.json.encode(question) + b"\n")
        async with local_timeout(answer_s, f"the supervisor at {socket}"):
            line = await reader.readuntil(b"\n")
        if until_gone_s is not None:
            async with local_timeout(until_gone_s, f"the end of the supervisor at {socket}"):
                await wait_until_gone(socket)
    except TimeoutError as error:
        raise UpError(f"the supervisor at {socket} does not answer") from error
    except (OSError, asyncio.IncompleteReadError) as error:
        raise UpError(f"the supervisor at {socket} ended before it answered") from error
    finally:
        writer.close()
    answer = msgspec.json.decode(line, type=Answer)
    if answer.error is not None:
        raise UpError(answer.error)
    return answer


async def wait_until_gone(socket: Path) -> None:
    """Return once nobody listens on a socket."""
    while True:
        try:
            _, writer = await asyncio.open_unix_connection(socket)
        except OSError:
            return
        writer.close()
        await asyncio.sleep(0.05)
