"""Processes that podman starts in a running container; their streams use a connection upgraded from HTTP.

Source: "Attach to a container" of Docker's API 1.40, which podman's exec follows: after 101 the connection carries
frames of an 8-byte header (stream, 3 zeros, length in big-endian) or, with a terminal, only bytes.
"""

from __future__ import annotations

import asyncio
import json
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from controller.workloads.nodes.runtimes.base import STDERR, STDOUT, Output, Terminal
from controller.workloads.nodes.runtimes.errors import ContainerError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.podman.client import raise_for
from controller.workloads.nodes.runtimes.processes import kill_member
from dataplane.cgroups import Group, group_at
from dataplane.local.deadline import local_timeout

_HEADER_BYTES: Final = 8
_PIECE_BYTES: Final = 65_536
_HEAD_BYTES: Final = 65_536
_UPGRADED: Final = 101
_LOOK_S: Final = 0.02
_MOST_LOOK_S: Final = 0.5

Call = Callable[..., Awaitable[bytes]]


class PodmanExec:
    """A process in a container, as ExecSession."""

    def __init__(
        self,
        id: str,  # noqa: A002
        call: Call,
        streams: tuple[StreamReader, StreamWriter],
        group: Group,
        *,
        has_terminal: bool,
    ) -> None:
        self._id, self._call, self._group, self._has_terminal = id, call, group, has_terminal
        self._reader, self._writer = streams

    async def output(self) -> AsyncGenerator[Output]:
        """Yield what it writes."""
        while True:
            try:
                if self._has_terminal:
                    data, stream = await self._reader.read(_PIECE_BYTES), STDOUT
                    if not data:
                        return
                    yield Output(stream, data)
                    continue
                header = await self._reader.readexactly(_HEADER_BYTES)
                stream, left = header[0], int.from_bytes(header[4:])
                while left:
                    data = await self._reader.read(min(left, _PIECE_BYTES))
                    if not data:
                        return
                    left -= len(data)
                    yield Output(STDERR if stream == STDERR else STDOUT, data)
            except (asyncio.IncompleteReadError, ConnectionError):
                return

    async def write(self, data: bytes) -> None:
        """Write to its standard input; input that it no longer reads is lost."""
        with suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def close_input(self) -> None:
        """End its standard input."""
        if self._has_terminal:
            await self.write(b"\x04")
        elif not self._writer.is_closing():
            with suppress(OSError):
                self._writer.write_eof()

    async def resize(self, size: Terminal) -> None:
        """Set its terminal's size."""
        query = {"h": str(size.rows), "w": str(size.columns)}
        await self._call("POST", f"exec/{self._id}/resize", "resize of a terminal", query=query)

    async def exit_code(self) -> int:
        """Return its exit code once it has ended."""
        wait_s = _LOOK_S
        while (state := await self._state())["Running"]:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _MOST_LOOK_S)
        return int(state["ExitCode"])

    async def close(self) -> None:
        """End the connection, and the process if it still runs."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
        with suppress(ContainerError):
            state = await self._state()
            if state["Running"] and state["Pid"]:
                kill_member(int(state["Pid"]), self._group)

    async def _state(self) -> Mapping[str, Any]:
        state: dict[str, Any] = json.loads(await self._call("GET", f"exec/{self._id}/json", "look at a process"))
        return state


async def start_exec(
    call: Call,
    socket: Path,
    id: str,  # noqa: A002
    command: tuple[str, ...],
    *,
    terminal: Terminal | None,
    deadline_s: float,
) -> PodmanExec:
    """Start a process in a running container and return it; the caller closes it."""
    doing = f"exec in {id[:12]}"
    inspected = json.loads(await call("GET", f"containers/{id}/json", doing))
    if not inspected["State"].get("CgroupPath"):
        raise ContainerError(f"podman: {doing}: it is not running")
    group = group_at(str(inspected["State"]["CgroupPath"]))
    wanted = {
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": terminal is not None,
        "Cmd": list(command),
    }
    process = str(json.loads(await call("POST", f"containers/{id}/exec", doing, body=wanted))["Id"])
    size = {} if terminal is None else {"h": terminal.rows, "w": terminal.columns}
    body = msgspec.json.encode({"Detach": False, "Tty": terminal is not None, **size})
    try:
        async with local_timeout(deadline_s, f"podman: {doing}"):
            streams = await _upgrade(socket, f"/v4.0.0/libpod/exec/{process}/start", body, doing)
    except TimeoutError as error:
        raise RuntimeTimeoutError("podman", doing, deadline_s) from error
    return PodmanExec(process, call, streams, group, has_terminal=terminal is not None)


async def _upgrade(socket: Path, path: str, body: bytes, doing: str) -> tuple[StreamReader, StreamWriter]:
    """Return a connection upgraded from HTTP to bytes both ways."""
    try:
        reader, writer = await asyncio.open_unix_connection(str(socket), limit=_HEAD_BYTES)
    except OSError as error:
        raise RuntimeAwayError(f"podman: {doing}: its service is away: {error.strerror}") from error
    try:
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: podman\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != _UPGRADED:
            raise_for(status, await reader.read(_HEAD_BYTES), doing)
            raise ContainerError(f"podman: {doing}: HTTP {status} instead of 101")
    except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise ContainerError(f"podman: {doing}: the connection ended before the process began") from error
    except BaseException:
        writer.close()
        raise
    return reader, writer
