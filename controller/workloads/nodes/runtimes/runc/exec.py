"""Processes that runc starts in a running container, with pipes, or with a terminal that runc copies to ours."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from asyncio import StreamReader
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.base import STDERR, STDOUT, Output, Terminal
from controller.workloads.nodes.runtimes.errors import ContainerError, RuntimeAwayError, RuntimeTimeoutError
from controller.workloads.nodes.runtimes.processes import child_environment, kill_member, one_line
from dataplane.cgroups import Group
from dataplane.local.deadline import local_timeout
from dataplane.local.programs import close_pipes, end_group

_PIECE_BYTES: Final = 65_536
_QUEUED: Final = 4
_LOOK_S: Final = 0.005
_END_S: Final = 2.0
_WINDOW: Final = struct.Struct("HHHH")


class RuncExec:
    """A process in a container, as ExecSession; runc has written its number to `pid_file`."""

    def __init__(self, process: Process, group: Group, pid_file: Path, terminal: _TerminalEnd | None) -> None:
        self._process, self._group, self._pid_file, self._terminal = process, group, pid_file, terminal
        self._copies: list[asyncio.Task[None]] = []

    async def begin(self, doing: str) -> None:
        """Wait until the process runs; raise ContainerError with runc's reason if it cannot."""
        while not self._pid_file.exists():
            if self._process.returncode is not None and not self._pid_file.exists():
                message = b"".join([output.data async for output in self.output()]).decode("utf-8", "replace")
                raise ContainerError(f"runc: {doing}: {one_line(message) or self._process.returncode}")
            await asyncio.sleep(_LOOK_S)

    async def output(self) -> AsyncGenerator[Output]:
        """Yield its output, both streams in order of arrival."""
        if self._terminal is not None:
            while data := await self._terminal.reader.read(_PIECE_BYTES):
                yield Output(STDOUT, data)
            return
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        queue: asyncio.Queue[Output] = asyncio.Queue(_QUEUED)
        self._copies = [
            asyncio.create_task(_copy(self._process.stdout, STDOUT, queue)),
            asyncio.create_task(_copy(self._process.stderr, STDERR, queue)),
        ]
        try:
            ended = 0
            while ended < len(self._copies):
                output = await queue.get()
                if output.data:
                    yield output
                else:
                    ended += 1
        finally:
            for copy in self._copies:
                copy.cancel()
            await asyncio.gather(*self._copies, return_exceptions=True)

    async def write(self, data: bytes) -> None:
        """Write to its standard input; input that it no longer reads is lost."""
        writer = self._process.stdin if self._terminal is None else self._terminal
        assert writer is not None
        with suppress(ConnectionError, OSError):
            writer.write(data)
            await writer.drain()

    async def close_input(self) -> None:
        """End its standard input: on a terminal by the end-of-file character."""
        if self._terminal is not None:
            await self.write(b"\x04")
        elif self._process.stdin is not None:
            self._process.stdin.close()

    async def resize(self, size: Terminal) -> None:
        """Set its terminal's size."""
        if self._terminal is not None:
            self._terminal.resize(size)

    async def exit_code(self) -> int:
        """Return its exit code once it has ended."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        """End the session, and the process if it still runs."""
        if self._process.returncode is None:
            with suppress(OSError, ValueError):
                kill_member(int(self._pid_file.read_text()), self._group)
            # runc ends by itself then, and loses the process's exit code.
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._read_to_end()
        close_pipes(self._process)
        if self._terminal is not None:
            self._terminal.close()
        await end_group(self._process)
        self._pid_file.unlink(missing_ok=True)

    async def _read_to_end(self) -> None:
        """Wait for runc, whatever is still written."""
        for copy in self._copies:
            copy.cancel()
        await asyncio.gather(*self._copies, return_exceptions=True)
        readers = (self._process.stdout, self._process.stderr) if self._terminal is None else (self._terminal.reader,)
        for reader in readers:
            while reader is not None and await reader.read(_PIECE_BYTES):
                continue
        await self._process.wait()


class _TerminalEnd:
    """Our end of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.reader = StreamReader()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        reading = os.fdopen(os.dup(self._descriptor), "rb", buffering=0)
        writing = os.fdopen(os.dup(self._descriptor), "wb", buffering=0)
        protocol = _LastRead(self.reader)
        self._reading, _ = await loop.connect_read_pipe(lambda: protocol, reading)
        transport, flow = await loop.connect_write_pipe(lambda: asyncio.streams.FlowControlMixin(loop), writing)
        self._writer = asyncio.StreamWriter(transport, flow, None, loop)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def resize(self, size: Terminal) -> None:
        window = _WINDOW.pack(size.rows, size.columns, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, window)

    def close(self) -> None:
        self._reading.close()
        # Pending input is of no use any more; waiting for room could block.
        self._writer.transport.abort()
        os.close(self._descriptor)


class _LastRead(asyncio.StreamReaderProtocol):
    """Treats EIO, by which a terminal reports that its other end is closed, as the end."""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None if isinstance(exc, OSError) else exc)


async def start_exec(
    command: tuple[str, ...],
    doing: str,
    *,
    environment: Mapping[str, str],
    group: Group,
    pid_file: Path,
    terminal: Terminal | None,
    deadline_s: float,
) -> RuncExec:
    """Run runc's exec command and return once the process has begun; the caller closes the session."""
    variables = child_environment(environment)
    try:
        if terminal is None:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=variables, start_new_session=True
            )
            session = RuncExec(process, group, pid_file, None)
        else:
            session = await _with_terminal(command, variables, group, pid_file, terminal)
    except OSError as error:
        raise RuntimeAwayError(f"runc: {doing}: it cannot be started: {(error.strerror or '').lower()}") from error
    try:
        async with local_timeout(deadline_s, f"runc: {doing}"):
            await session.begin(doing)
    except TimeoutError as error:
        await session.close()
        raise RuntimeTimeoutError("runc", doing, deadline_s) from error
    except BaseException:
        await session.close()
        raise
    return session


async def _with_terminal(
    command: tuple[str, ...], variables: Mapping[str, str], group: Group, pid_file: Path, terminal: Terminal
) -> RuncExec:
    ours, theirs = os.openpty()
    try:
        end = _TerminalEnd(ours)
        end.resize(terminal)
        # The terminal is the session's own, so that runc is notified of each change of its size.
        words = ("setsid", "--ctty", "--wait", *command)
        process = await asyncio.create_subprocess_exec(
            *words, stdin=theirs, stdout=theirs, stderr=theirs, env=variables
        )
        await end.open()
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return RuncExec(process, group, pid_file, end)


async def _copy(reader: StreamReader, stream: int, queue: asyncio.Queue[Output]) -> None:
    """Put the input into the queue, and at the end an entry without data."""
    data = b"-"
    while data:
        data = await reader.read(_PIECE_BYTES)
        await queue.put(Output(stream, data))
