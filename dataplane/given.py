"""Reading of user-specified files: bounded in size, and never blocking forever.

A name may refer to anything: a folder, /dev/zero, a pipe without a writer, a file larger than memory. Unreadable ones
raise an OSError that says why, so that handlers of `open`'s errors catch these.
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
"""Default maximum size of a file."""
DOCUMENT_BYTES: Final = 16 * MIB
"""Maximum size of human-written files: settings, topologies, scripts."""
SECRET_BYTES: Final = MIB
"""Maximum size of keys, certificates and tokens."""
LINE_BYTES: Final = MIB
"""Maximum length of a line in files that are read line by line."""

_WAIT_S: Final = 10.0
_CHUNK: Final = MIB


def read_given(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a file, pipe or device; raise OSError if it is larger or a pipe stays silent for 10 s."""
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
    """Return the content of a file as text, its line ends as newlines, like `Path.read_text`."""
    data = read_given(path, most_bytes)
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding, errors=errors).read()


def open_given(path: Path | str) -> io.BufferedReader:
    """Open a file, or a pipe with a writer, for a reader that holds little of it at a time."""
    with _opened(path) as (descriptor, _):
        os.set_blocking(descriptor, True)
        return os.fdopen(os.dup(descriptor), "rb")


def given_lines(path: Path | str, *, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of a file with their ends; raise OSError for one of more than a MiB."""
    with open_given(path) as file:
        yield from bounded_lines(file, str(path), encoding=encoding)


def bounded_lines(file: BinaryIO, name: str, *, encoding: str = "utf-8") -> Iterator[str]:
    """Yield the lines of an open file like `given_lines`; `name` is its name in errors."""
    while line := file.readline(LINE_BYTES + 1):
        if len(line) > LINE_BYTES:
            raise OSError(errno.EFBIG, f"has a line of more than {LINE_BYTES // MIB} MiB, the most that is read", name)
        yield line.decode(encoding)
        encoding = "utf-8" if encoding == "utf-8-sig" else encoding


def read_stdin(most: int = DOCUMENT_BYTES) -> str:
    """Read standard input to its end, however long that takes; raise OSError for more than `most` characters."""
    text = sys.stdin.read(most + 1)
    if len(text) > most:
        raise _too_large("<stdin>", most)
    return text


@contextmanager
def _opened(path: Path | str) -> Iterator[tuple[int, os.stat_result]]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError as error:
        raise OSError(errno.EINVAL, "is not a file name", str(path)) from error
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
    """Return the next available part, nothing at the end; wait for it, at a terminal without limit."""
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
    """Return whether a pipe gets data or is closed by a writer in time: until then it reads as empty."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_WAIT_S * 1_000))


def _silent(path: Path | str) -> OSError:
    return OSError(errno.ETIMEDOUT, f"is a pipe that stays silent for {_WAIT_S:g} s", str(path))


def _too_large(path: Path | str, most_bytes: int) -> OSError:
    size = f"{most_bytes // MIB} MiB" if most_bytes >= MIB else f"{most_bytes} bytes"
    return OSError(errno.EFBIG, f"is larger than {size}, the most that is read", str(path))
