"""The lease's file: the end of the lease, and the control groups of the node's pods.

A manager overwrites it in place, with a fixed size, so that a full disk cannot prevent that; readers check by a
checksum that it is whole. This module imports no other package of ours: the guard must start at once.
"""

from __future__ import annotations

import os
import zlib

SIZE = 8192
_MAGIC = "millrace lease 1"


class LeaseFileError(Exception):
    """A file is not a lease, or is half written."""


def encode(end_ns: int, boot: str, folders: tuple[str, ...]) -> bytes:
    """Return a file's content: these folders, and when to kill them, by CLOCK_BOOTTIME of the boot of this id."""
    lines = "\n".join((_MAGIC, str(end_ns), boot, *folders)) + "\n"
    body = lines.encode()
    text = f"{zlib.crc32(body):08x}\n".encode() + body
    if len(text) > SIZE:
        raise LeaseFileError(f"{len(folders)} folders do not fit into {SIZE} bytes")
    return text.ljust(SIZE, b"\n")


def decode(data: bytes) -> tuple[int, str, tuple[str, ...]]:
    """Return when to kill, the boot's id and the folders; raise LeaseFileError."""
    check, _, rest = data.partition(b"\n")
    body = rest.rstrip(b"\n") + b"\n"
    lines = body.decode("utf-8", "replace").splitlines()
    if len(data) != SIZE or check != f"{zlib.crc32(body):08x}".encode() or len(lines) < 3 or lines[0] != _MAGIC:
        raise LeaseFileError("not a lease, or only a part of one")
    try:
        end_ns = int(lines[1])
    except ValueError:
        raise LeaseFileError("a lease without an end") from None
    return end_ns, lines[2], tuple(lines[3:])


def write(path: str, end_ns: int, boot: str, folders: tuple[str, ...]) -> None:
    """Write a lease; raise OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, encode(end_ns, boot, folders), 0)
    finally:
        os.close(descriptor)


def read(path: str) -> tuple[int, str, tuple[str, ...]]:
    """Return a lease's content; raise OSError or LeaseFileError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return decode(os.pread(descriptor, SIZE + 1, 0))
    finally:
        os.close(descriptor)


def boot_id() -> str:
    """Return the identifier of the machine's current boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes long to load
        return file.read().strip()
