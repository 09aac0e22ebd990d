"""Network namespaces of the calling thread: the same name or number means another device elsewhere."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)


def open_netns(thread: str = "thread-self") -> int:
    """Return a descriptor of this thread's network namespace, or of the given process's."""
    return os.open(f"/proc/{thread}/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter_netns(netns: int) -> None:
    """Move the calling thread into a namespace; raise OSError, leaving it where it was, on failure."""
    if _libc.setns(netns, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextmanager
def in_netns(netns: int) -> Iterator[None]:
    """Run in a namespace, or in the current one without the right to move. Raises OSError if nothing leads back."""
    here = open_netns()
    moved = _libc.setns(netns, _CLONE_NEWNET) == 0
    try:
        yield
    finally:
        failed = moved and _libc.setns(here, _CLONE_NEWNET) != 0
        os.close(here)
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
