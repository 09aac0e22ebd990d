"""Reads files that somebody names: never more than a limit, and never waiting for ever.

A name may be that of anything: a folder, /dev/zero, a pipe that nobody writes to, a file larger than memory. What
cannot be read is an OSError that says why, so that whoever catches those of `open` catches these.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

MIB: Final = 1 << 20
MOST_BYTES: Final = 64 * MIB
"""What is read of a file at most where its reader says nothing else."""
DOCUMENT_BYTES: Final = 16 * MIB
"""What is read at most of what people write: settings, topologies, scripts."""
SECRET_BYTES: Final = MIB
"""What is read at most of keys, certificates and tokens."""
LINE_BYTES: Final = MIB
"""How long a line may be in files that are read line by line."""

_WAIT_S: Final = 10.0
_CHUNK: Final = MIB


def read_given(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file, pipe or device; raise OSError if it is more, or if a pipe stays silent for 10 s."""
    with _opened(path) as (descriptor, status):
        if stat.S_ISREG(status.st_mode) and status.st_size > most_bytes:
            raise _too_large(path, most_bytes)
        parts: list[bytes] = []
        size = 0
        while part := _part(descriptor, path):
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                raise _too_large(path, most_bytes)
    return b"".join(parts)


def read_given_text(
    path: Path | str, most_bytes: int = DOCUMENT_BYTES, *, encoding: str = "utf-8", errors: str = "strict"
) -> str:
    """Return the content of a file as text, its line ends as newlines, as `Path.read_text` does."""
    data = read_given(path, most_bytes)
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding, errors=errors).read()


def open_given(path: Path | str) -> io.BufferedReader:
    """Open a file, or a pipe that somebody writes to, for a reader that holds little of it at a time."""
    with _opened(path) as (descriptor, _):
        os.set_blocking(descriptor, True)
        return os.fdopen(os.dup(descriptor), "rb")


def given_lines(path: Path | str, *, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a file with their ends; raise OSError for one of more than a MiB."""
    with open_given(path) as file:
        yield from bounded_lines(file, str(path), encoding=encoding)


def bounded_lines(file: BinaryIO, name: str, *, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of an open file as `given_lines` does; `name` is what errors call it."""
    while line := file.readline(LINE_BYTES + 1):
        if len(line) > LINE_BYTES:
            raise OSError(errno.EFBIG, f"has a line of more than {LINE_BYTES // MIB} MiB, the most that is read", name)
        yield line.decode(encoding)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding


def read_stdin(most: int = DOCUMENT_BYTES) -> str:
    """Return what comes from standard input, however long that takes; raise OSError for more letters than `most`."""
    text = sys.stdin.read(most + 1)
    if len(text) > most:
        raise _too_large("<stdin>", most)
    return text


@contextmanager
def _opened(path: Path | str) -> Iterator[tuple[int, os.stat_result]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, "is no file's name", str(path)) from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if stat.S_ISBLK(status.st_mode):
            raise OSError(errno.EINVAL, "is a block device", str(path))
        if stat.S_ISFIFO(status.st_mode) and not _is_ready(descriptor):
            raise _silent(path)
        yield descriptor, status
    finally:
        os.close(descriptor)


def _part(descriptor: int, path: Path | str) -> bytes:
    """Return what can be read next, nothing at the end; wait for it, at a terminal as long as it takes."""
    until_s = time.monotonic() + _WAIT_S
    while True:
        try:
            return os.read(descriptor, _CHUNK)
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLIN)
            left_s = max(0.0, until_s - time.monotonic())
            if not poll.poll(None if os.isatty(descriptor) else left_s * 1_000):
                raise _silent(path) from None


def _is_ready(descriptor: int) -> bool:
    """Return whether within the time somebody writes to a pipe, or has closed it: until then it reads as empty."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_WAIT_S * 1_000))


def _silent(path: Path | str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"is a pipe from which nothing comes within {_WAIT_S:g} s", str(path))


def _too_large(path: Path | str, most_bytes: int) -> OSError:
    size = f"{most_bytes // MIB} MiB" if most_bytes >= MIB else f"{most_bytes} bytes"
    return OSError(errno.EFBIG, f"is larger than {size}, the most that is read of it", str(path))
