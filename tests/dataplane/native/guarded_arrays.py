"""Runs tests with every NumPy array between inaccessible pages: python -m ... end|begin PYTEST-ARGUMENT...

Kernels are given pointers to arrays, and nothing checks an index: one element too far, at the end or before the
beginning, and the process is gone (SIGSEGV). What lies between an array and the page on its other side has a pattern
that is looked at when the array is freed. Memory that is not cleared has the pattern, too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import sys

import numpy as np
import pytest

from dataplane.allreduce import transports
from dataplane.native import pointer_to

PAGE = mmap.PAGESIZE
MOST = 12_000
"""Maximum number of guarded arrays: a process may have 65,530 mappings, and each takes three. Others are plain."""
_PATTERN, _NO_ACCESS = 0xA5, 0
_SET_HANDLER = 304
"""Index of PyDataMem_SetHandler in NumPy's table (numpy/_core/code_generators/numpy_api.py)."""
_READ_WRITE, _PRIVATE_ANONYMOUS = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = _libc.malloc.restype = _libc.realloc.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.realloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.malloc.argtypes, _libc.free.argtypes = (ctypes.c_size_t,), (ctypes.c_void_p,)

Malloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
Realloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Handler(ctypes.Structure):
    """PyDataMem_Handler."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", Malloc),
        ("calloc", Calloc),
        ("realloc", Realloc),
        ("free", Free),
    )


class Guards:
    """Memory for arrays, each flush against a forbidden page behind it (`at_end`) or before it."""

    def __init__(self, *, at_end: bool) -> None:
        self._at_end = at_end
        self._rooms: dict[int, tuple[int, int, int]] = {}
        self.guarded = 0
        self.handler = Handler(
            b"guarded", 1, None, Malloc(self._malloc), Calloc(self._calloc), Realloc(self._realloc), Free(self._free)
        )

    def use(self) -> None:
        """Let NumPy allocate arrays here."""
        capsule_of = ctypes.pythonapi.PyCapsule_New
        capsule_of.restype = ctypes.py_object
        capsule_of.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
        pointer_in.restype, pointer_in.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        table = pointer_in(np._core.multiarray._ARRAY_API, None)  # type: ignore[attr-defined]
        address = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))[_SET_HANDLER]
        set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address or 0)
        set_handler(capsule_of(ctypes.addressof(self.handler), b"mem_handler", None))

    def _malloc(self, _: object, nbytes: int) -> int:
        address = self._taken(nbytes)
        ctypes.memset(address, _PATTERN, nbytes)
        return address

    def _calloc(self, _: object, count: int, nbytes: int) -> int:
        address = self._taken(count * nbytes)
        ctypes.memset(address, 0, count * nbytes)
        return address

    def _realloc(self, _: object, old: int | None, nbytes: int) -> int:
        if old and old not in self._rooms:
            return int(_libc.realloc(old, nbytes or 1))
        address = self._malloc(None, nbytes)
        if old:
            had = self._rooms[old][2]
            ctypes.memmove(address, old, min(had, nbytes))
            self._free(None, old, had)
        return address

    def _free(self, _: object, address: int | None, __: int) -> None:
        room = self._rooms.pop(address or 0, None)
        if room is None:
            _libc.free(address)
            return
        base, whole, nbytes = room
        slack = whole - 2 * PAGE - nbytes
        first = base + PAGE if self._at_end else base + PAGE + nbytes
        if ctypes.string_at(first, slack) != bytes([_PATTERN]) * slack:
            sys.stderr.write(f"an array of {nbytes} bytes was written outside of itself\n")
            faulthandler.dump_traceback(all_threads=False)
            os.abort()
        _libc.munmap(base, whole)

    def _taken(self, nbytes: int) -> int:
        if len(self._rooms) >= MOST:
            return int(_libc.malloc(nbytes or 1))
        room = max(PAGE, -(-nbytes // PAGE) * PAGE)
        base = int(_libc.mmap(None, room + 2 * PAGE, _READ_WRITE, _PRIVATE_ANONYMOUS, -1, 0))
        if base == ctypes.c_void_p(-1).value:
            raise MemoryError
        for page in (base, base + PAGE + room):
            _libc.mprotect(page, PAGE, _NO_ACCESS)
        ctypes.memset(base + PAGE, _PATTERN, room)
        address = base + PAGE + (room - nbytes if self._at_end else 0)
        self._rooms[address] = (base, room + 2 * PAGE, nbytes)
        self.guarded += 1
        return address


def main(side: str, *arguments: str) -> int:
    """Run tests, and print how many arrays were guarded, as proof that any were."""
    guards = Guards(at_end=side == "end")
    guards.use()
    transports.zeros = lambda nbytes: pointer_to(np.zeros(nbytes, np.uint8))  # of a bytearray otherwise
    code = int(pytest.main([*arguments, "-p", "no:cacheprovider", "-p", "no:xdist"]))
    print(guards.guarded)
    sys.stdout.flush()
    # Remaining arrays are freed by an interpreter that may no longer run callbacks.
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
