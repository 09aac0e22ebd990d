"""A timer to poll where DPDK offers no wake-up (timerfd_create(2))."""

from __future__ import annotations

import ctypes
import os
import time

PERIOD_NS = 1_000_000
"""Longest wait of Python between two looks at a queue that cannot wake it."""
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A descriptor that becomes readable one period after it was last read; raises OSError."""

    def __init__(self, period_ns: int = PERIOD_NS) -> None:
        self._descriptor: int = _libc.timerfd_create(time.CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        times = (ctypes.c_long * 4)(0, period_ns, 0, period_ns)
        if self._descriptor < 0 or _libc.timerfd_settime(self._descriptor, 0, times, None) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def fileno(self) -> int:
        """Return the descriptor, -1 once closed."""
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
