"""Memory between inaccessible pages: one byte too far, at either end, kills the process (SIGSEGV)."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

PAGE = mmap.PAGESIZE
NOTE_BYTES = 1 << 14
_NO_ACCESS = 0


class Guarded:
    """Room for `size` bytes, flush against a forbidden page before it or behind it."""

    def __init__(self, size: int) -> None:
        self._room = max(PAGE, -(-size // PAGE) * PAGE)
        self._memory = mmap.mmap(-1, self._room + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.begin, self.end = base + PAGE, base + PAGE + self._room
        for page in (base, self.end):
            _forbid(page)

    def place(self, size: int, *, at_end: bool) -> int:
        """Return the start of `size` bytes that end where the memory ends, or begin where it begins."""
        assert size <= self._room
        return self.end - size if at_end else self.begin

    def put(self, data: bytes, *, at_end: bool) -> int:
        """Write bytes flush against one of the ends; return where they begin."""
        address = self.place(len(data), at_end=at_end)
        ctypes.memmove(address, data, len(data))
        return address

    def fill(self, byte: int) -> None:
        """Set everything to a byte."""
        ctypes.memset(self.begin, byte, self._room)

    def read(self) -> bytes:
        """Return everything."""
        return ctypes.string_at(self.begin, self._room)


def _forbid(page: int) -> None:
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    if mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), _NO_ACCESS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Note:
    """Current activity of a process, in a file for another process to read after its death."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(NOTE_BYTES))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), NOTE_BYTES)

    def write(self, text: str) -> None:
        """Exchange the note."""
        data = text.encode()[: NOTE_BYTES - 1]
        self._memory[: len(data) + 1] = data + b"\0"

    @staticmethod
    def read(path: Path) -> str:
        """Return the last note."""
        return path.read_bytes().partition(b"\0")[0].decode(errors="replace")
