"""Changes of files and folders from the kernel (inotify(7)), for asyncio."""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataplane.closing import Closing

MODIFIED, CLOSED_WRITTEN, MOVED_TO, CREATED, MOVED = 0x2, 0x8, 0x80, 0x100, 0x800
OVERFLOWED: Final = 0x4000
_READ_BYTES: Final = 65_536
_HEADER: Final = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Change:
    """A change: `mask` is its type, `name` the file's name if a folder is watched."""

    mask: int
    name: str


class Inotify(Closing):
    """Watches files and folders; raises OSError if that is not possible."""

    def __init__(self) -> None:
        self._descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise _error("inotify")

    def watch(self, path: Path, mask: int) -> None:
        """Report such changes of a file, or in a folder, from now on."""
        if _libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask) < 0:
            raise _error(str(path))

    async def changes(self, wait_s: float | None = None) -> list[Change]:
        """Return the changes since the last call; wait for one, but no longer than `wait_s`."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), wait_s)
        except TimeoutError:
            return []
        finally:
            loop.remove_reader(self._descriptor)
        return self._read()

    def fileno(self) -> int:
        """Return the descriptor, for another event loop's use."""
        return self._descriptor

    def close(self) -> None:
        """Stop watching."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _read(self) -> list[Change]:
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        changes, offset = list[Change](), 0
        while offset < len(data):
            _, mask, _, nbytes = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            changes.append(Change(mask, os.fsdecode(data[offset : offset + nbytes].rstrip(b"\0"))))
            offset += nbytes
        return changes


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
