"""Memory that kernels (ours and Linux) work in: mapped by address, so that no Python object holds on to it."""

from __future__ import annotations

import ctypes
import mmap
import os

from dataplane.errors import PortError

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class MemoryMap:
    """A mapping of `nbytes` bytes, zeroed, or of a descriptor's ring at a byte offset; raises OSError."""

    def __init__(self, nbytes: int, descriptor: int = -1, offset: int = 0) -> None:
        self.nbytes = 0
        kind = mmap.MAP_SHARED if descriptor >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, nbytes, access, kind | mmap.MAP_POPULATE, descriptor, offset)
        if address is None or address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.address: int = address
        self.nbytes = nbytes

    def close(self) -> None:
        """Unmap the memory, which must no longer be touched; a second call does nothing."""
        if self.nbytes:
            _libc.munmap(self.address, self.nbytes)
            self.nbytes = 0

    def __del__(self) -> None:
        self.close()


def require_memory(user: str, nbytes: int) -> None:
    """Raise PortError for rings that would take more than an eighth of the machine's memory.

    The kernel itself tries to provide whatever is requested, and kills processes when memory runs out.
    """
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8
    if nbytes > limit:
        problem = f"a ring of {nbytes >> 20} MiB is more than an eighth of this machine's memory ({limit >> 20} MiB)"
        raise PortError(f"{user}: {problem}")
