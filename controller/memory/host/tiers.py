"""Memory of a tier as slots of one block each: anonymous memory, bound to a NUMA node or not, and files.

A file has a header of 32 bytes per slot before the blocks, written after its block: what a killed process leaves is
either a whole block with its header, or a free slot.

    | MRS1 | checksum of the block | key (8) | version (8) | checksum of these 24 bytes | 0 (4) |
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import stat
import struct
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from controller.memory.errors import TierError
from controller.memory.host.settings import SECTOR_BYTES, TierKind, TierSettings
from dataplane.file_lock import FileLock, HeldError

_LABEL: Final = struct.Struct("!4sIQQII")
_MAGIC: Final = b"MRS1"
_LABELS_BYTES: Final = 1 << 20
"""Headers are read so many bytes at a time."""
_MBIND: Final = {"x86_64": 237, "aarch64": 235}
_MPOL_BIND: Final = 2
_NODES_PER_WORD: Final = 64
SPARE: Final = 16
"""Slots beyond the capacity: a new version of a block is written beside the old one."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Slots(Protocol):
    """Slots of a tier; each is used by one caller at a time."""

    keeps: bool
    note: str

    def read(self, slot: int) -> bytes:
        """Return a slot's block; raise TierError if the device fails."""
        ...

    def read_part(self, slot: int) -> None:
        """Read the first 4 KiB, to time the device."""
        ...

    def write(self, slot: int, data: bytes | memoryview) -> None:
        """Write a slot's block; raise TierError if the device fails."""
        ...

    def label(self, slot: int, key: int, version: int, checksum: int) -> None:
        """Mark a slot as holding a block, after its block was written."""
        ...

    def clear(self, slot: int) -> None:
        """Mark a slot as free."""
        ...

    def labels(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield slot, key, version and checksum of all blocks that an earlier process left."""
        ...

    def close(self) -> None:
        """Release the memory or the file."""
        ...


def open_slots(settings: TierSettings, count: int, block_bytes: int) -> Slots:
    """Return a tier's slots; raise TierError, naming the tier."""
    if settings.kind is TierKind.FILE:
        return FileSlots(settings, count, block_bytes)
    return MemorySlots(settings, count, block_bytes)


class MemorySlots:
    """Anonymous memory."""

    keeps = False

    def __init__(self, settings: TierSettings, count: int, block_bytes: int) -> None:
        self.note = ""
        self._block_bytes = block_bytes
        try:
            self._memory = mmap.mmap(-1, count * block_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise TierError(f"tier {settings.name}: {count * block_bytes} bytes of memory: {error}") from None
        if settings.numa_node is not None:
            try:
                bind_to_node(self._memory, settings.numa_node)
            except OSError as error:
                self._memory.close()
                problem = f"the kernel refuses memory of NUMA node {settings.numa_node}: {error.strerror}"
                raise TierError(f"tier {settings.name}: {problem}") from None
        self._view = memoryview(self._memory)

    def read(self, slot: int) -> bytes:
        """Return a slot's block."""
        at = slot * self._block_bytes
        return bytes(self._view[at : at + self._block_bytes])

    def read_part(self, slot: int) -> None:
        """Read the first 4 KiB."""
        at = slot * self._block_bytes
        bytes(self._view[at : at + SECTOR_BYTES])

    def write(self, slot: int, data: bytes | memoryview) -> None:
        """Write a slot's block."""
        at = slot * self._block_bytes
        self._view[at : at + self._block_bytes] = data

    def label(self, slot: int, key: int, version: int, checksum: int) -> None:
        """Do nothing: the memory ends with the process."""

    def clear(self, slot: int) -> None:
        """Do nothing: the memory ends with the process."""

    def labels(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield nothing: new memory is empty."""
        return iter(())

    def close(self) -> None:
        """Release the memory."""
        self._view.release()
        self._memory.close()


def bind_to_node(memory: mmap.mmap, node: int) -> None:
    """Have the kernel take a mapping's pages from a NUMA node alone (mbind(2)); raise OSError if it refuses."""
    number = _MBIND.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"its number of mbind on {platform.machine()} is not known here")
    words = node // _NODES_PER_WORD + 1
    mask = (ctypes.c_uint64 * words)()
    mask[node // _NODES_PER_WORD] = 1 << node % _NODES_PER_WORD
    start = (ctypes.c_char * len(memory)).from_buffer(memory)
    # The kernel takes one bit less than it is told: man 2 mbind.
    bits = words * _NODES_PER_WORD + 1
    address, length = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_ulong(len(memory))
    result = _libc.syscall(number, address, length, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(bits), 0)
    problem = ctypes.get_errno()
    del start  # or the mapping could never be closed
    if result != 0:
        raise OSError(problem, os.strerror(problem))


class FileSlots:
    """A file of this process alone; blocks bypass the page cache if the file system can do that."""

    keeps = True

    def __init__(self, settings: TierSettings, count: int, block_bytes: int) -> None:
        self._settings, self._block_bytes, self._count = settings, block_bytes, count
        self._start = -(-count * _LABEL.size // block_bytes) * block_bytes
        self._threads = threading.local()
        self.note = ""
        path = Path(settings.path)
        try:
            self._lock = FileLock(f"{path}.lock")
        except HeldError as error:
            raise TierError(f"tier {settings.name}: {path}: {error}") from None
        except OSError as error:
            raise self._error(error) from None
        try:
            self._labels = self._opened(path)
            self._data = self._opened_direct(path) if settings.direct else os.dup(self._labels)
        except BaseException:
            self._lock.release()
            raise

    def _opened(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_DSYNC if self._settings.sync else 0)
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise self._error(error) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise TierError(f"tier {self._settings.name}: {path} is not a file of this user alone (mode 600)")
            size = self._start + self._count * self._block_bytes
            if status.st_size not in {0, size}:
                problem = f"{path} has {status.st_size} bytes, not the {size} of its capacity and block size"
                raise TierError(f"tier {self._settings.name}: {problem}")
            if status.st_size == 0:
                # Reserved now: a disk that fills later would fail in the middle of a move.
                os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            os.close(descriptor)
            raise self._error(error) from None
        except TierError:
            os.close(descriptor)
            raise
        return descriptor

    def _opened_direct(self, path: Path) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_DSYNC if self._settings.sync else 0)
        try:
            return os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                os.close(self._labels)
                raise self._error(error) from None
        self.note = "through the page cache: the file system has no direct access"
        return os.dup(self._labels)

    def read(self, slot: int) -> bytes:
        """Return a slot's block."""
        buffer = self._buffer()
        self._read_into(buffer, self._start + slot * self._block_bytes)
        return buffer[: self._block_bytes]

    def read_part(self, slot: int) -> None:
        """Read the first 4 KiB."""
        with memoryview(self._buffer()) as view, view[:SECTOR_BYTES] as part:
            self._read_into(part, self._start + slot * self._block_bytes)

    def write(self, slot: int, data: bytes | memoryview) -> None:
        """Write a slot's block."""
        buffer = self._buffer()
        buffer[: self._block_bytes] = bytes(data)
        self._write(self._data, buffer, self._start + slot * self._block_bytes)

    def label(self, slot: int, key: int, version: int, checksum: int) -> None:
        """Write a slot's header."""
        fields = _LABEL.pack(_MAGIC, checksum, key, version, 0, 0)[:24]
        self._write(self._labels, fields + struct.pack("!II", zlib.crc32(fields), 0), slot * _LABEL.size)

    def clear(self, slot: int) -> None:
        """Overwrite a slot's header."""
        self._write(self._labels, bytes(_LABEL.size), slot * _LABEL.size)

    def labels(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield slot, key, version and checksum of all blocks; a damaged header is a free slot."""
        size = self._count * _LABEL.size
        for start in range(0, size, _LABELS_BYTES):
            data = os.pread(self._labels, min(_LABELS_BYTES, size - start), start)
            if len(data) != min(_LABELS_BYTES, size - start):
                raise TierError(f"tier {self._settings.name}: {self._settings.path} ends early")
            for at, (magic, checksum, key, version, own, _) in enumerate(_LABEL.iter_unpack(data)):
                if magic == _MAGIC and own == zlib.crc32(data[at * _LABEL.size : at * _LABEL.size + 24]):
                    yield start // _LABEL.size + at, key, version, checksum

    def close(self) -> None:
        """Close the file and let another process have it."""
        for descriptor in (self._data, self._labels):
            with suppress(OSError):  # what was written is written
                os.close(descriptor)
        self._lock.release()

    def _buffer(self) -> mmap.mmap:
        """Return a buffer of this thread: direct access needs whole pages."""
        buffer: mmap.mmap | None = getattr(self._threads, "buffer", None)
        if buffer is None:
            buffer = self._threads.buffer = mmap.mmap(-1, self._block_bytes)
        return buffer

    def _read_into(self, buffer: mmap.mmap | memoryview, offset: int) -> None:
        try:
            count = os.preadv(self._data, [buffer], offset)
        except OSError as error:
            raise self._error(error) from None
        if count != len(buffer):
            raise TierError(f"tier {self._settings.name}: {self._settings.path} ends at byte {offset + count}")

    def _write(self, descriptor: int, data: mmap.mmap | bytes, offset: int) -> None:
        try:
            count = os.pwritev(descriptor, [data], offset)
        except OSError as error:
            raise self._error(error) from None
        if count != len(data):
            raise TierError(f"tier {self._settings.name}: {self._settings.path}: only {count} bytes were written")

    def _error(self, error: OSError) -> TierError:
        return TierError(f"tier {self._settings.name}: {self._settings.path}: {error.strerror or error}")
