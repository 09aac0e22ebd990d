"""Output of containers, from conmon's log file, for podman and runc alike.

A line of it is `TIME STREAM F|P TEXT`: RFC 3339 with nanoseconds, stdout or stderr, F for a full line and P for a part
of one (the log format of Kubernetes' CRI). When the file has grown to its bound conmon replaces it with an empty one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from controller.workloads.nodes.runtimes.base import STDERR, STDOUT, Output
from controller.workloads.nodes.runtimes.inotify import CLOSED_WRITTEN, MODIFIED, MOVED_TO, OVERFLOWED, Inotify
from dataplane.clock import NS_PER_S

LOG_BYTES: Final = 10 << 20
"""Most bytes kept of a container's log."""
_BLOCK_BYTES: Final = 65_536
_OUTPUT_BYTES: Final = 65_536
_LOOK_S: Final = 1.0
"""Longest wait for more output before checking whether the container still runs."""
_STREAMS: Final = {b"stdout": STDOUT, b"stderr": STDERR}


async def read_log(
    path: Path,
    *,
    is_running: Callable[[], Awaitable[bool]] | None = None,
    tail: int | None = None,
    since_ns: int | None = None,
) -> AsyncGenerator[Output]:
    """Yield a log's content in pieces of at most 64 KiB; with `is_running`, also new output until it returns False.

    `tail` is the number of last lines to begin with; `since_ns` leaves out older ones (ns since 1970). Invalid lines
    are left out: only conmon writes this file.
    """
    with Inotify() as inotify:
        if is_running is not None:
            inotify.watch(path.parent, MODIFIED | MOVED_TO | CLOSED_WRITTEN)
        opened = await asyncio.to_thread(_open, path, tail)
        try:
            while True:
                # Check before reading, so that output written just before its end is not missed.
                goes_on = is_running is not None and await is_running()
                async for output in _written(opened, since_ns):
                    yield output
                if opened is None or not _is_same(opened, path):
                    async for output in _written(opened, since_ns):
                        yield output
                    opened = await asyncio.to_thread(_reopened, opened, path)
                    if opened is not None:
                        continue
                if not goes_on:
                    return
                await _until_changed(inotify, path.name)
        finally:
            if opened is not None:
                opened.close()


async def _until_changed(inotify: Inotify, name: str) -> None:
    """Return when the file may have more, or its container may have ended: conmon closes it then."""
    while changes := await inotify.changes(_LOOK_S):
        if any(change.name == name or change.mask & OVERFLOWED for change in changes):
            return


def parse(lines: list[bytes], since_ns: int | None = None) -> Iterator[Output]:
    """Yield the content of a log's lines, those of one stream joined up to 64 KiB."""
    stream, pieces, nbytes = STDOUT, list[bytes](), 0
    for line in lines:
        when, name, kind, text = (*line.rstrip(b"\n").split(b" ", 3), b"", b"", b"")[:4]
        number = _STREAMS.get(name)
        if number is None or (since_ns is not None and _time_ns(when) < since_ns):
            continue
        data = text if kind == b"P" else text + b"\n"
        if pieces and (number != stream or nbytes + len(data) > _OUTPUT_BYTES):
            yield Output(stream, b"".join(pieces))
            pieces, nbytes = [], 0
        stream = number
        pieces.append(data)
        nbytes += len(data)
    if pieces:
        yield Output(stream, b"".join(pieces))


async def _written(opened: IO[bytes] | None, since_ns: int | None) -> AsyncGenerator[Output]:
    """Yield the content of a file from its position on, whole lines only."""
    while opened is not None and (lines := await asyncio.to_thread(_lines, opened)):
        for output in parse(lines, since_ns):
            yield output


def _lines(opened: IO[bytes]) -> list[bytes]:
    lines = opened.readlines(_BLOCK_BYTES)
    if lines and not lines[-1].endswith(b"\n"):
        opened.seek(-len(lines.pop()), os.SEEK_CUR)
    return lines


def _open(path: Path, tail: int | None) -> IO[bytes] | None:
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return None
    if tail is not None:
        opened.seek(_start_of_tail(opened, tail))
    return opened


def _reopened(opened: IO[bytes] | None, path: Path) -> IO[bytes] | None:
    if opened is not None:
        opened.close()
    return _open(path, None)


def _start_of_tail(opened: IO[bytes], tail: int) -> int:
    """Return the offset of the last `tail` full lines; parts of a line belong to it."""
    position = end = opened.seek(0, os.SEEK_END)
    rest, starts = b"", list[int]()
    while position > 0 and len(starts) <= tail:
        # Twice as much each time: the whole is split again.
        nbytes = min(max(_BLOCK_BYTES, len(rest)), position)
        position -= nbytes
        opened.seek(position)
        rest = opened.read(nbytes) + rest
        starts = _starts_of_lines(rest, position)
        if position:
            # Its first line may lack its beginning.
            starts = starts[1:]
    return end if tail == 0 else starts[-tail] if len(starts) >= tail else 0


def _starts_of_lines(data: bytes, offset: int) -> list[int]:
    """Return the start of each line that a container wrote: after a full one, so that parts stay together."""
    starts, is_new = list[int](), True
    for line in data.splitlines(keepends=True):
        if is_new:
            starts.append(offset)
        is_new = line.split(b" ", 3)[2:3] != [b"P"]
        offset += len(line)
    return starts


def _is_same(opened: IO[bytes], path: Path) -> bool:
    """Return whether an open file is still the one at its path; a missing path counts as the same file."""
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(opened.fileno()).st_ino
    return True


def _time_ns(when: bytes) -> int:
    """Return RFC 3339 as nanoseconds since 1970; 0 for anything else."""
    text = when.decode("ascii", "replace")
    seconds, dot, rest = text.partition(".")
    digits, zone = (rest[:9], rest[9:]) if dot else ("0", seconds[19:])
    try:
        return int(datetime.fromisoformat(f"{seconds[:19]}{zone}").timestamp()) * NS_PER_S + int(f"{digits:0<9}")
    except ValueError:
        return 0
