"""The time of the API server's server, as its answers tell it: a machine's own clock may be anything."""

from __future__ import annotations

import time
from collections.abc import Callable


def boot_time_ns() -> int:
    """Return nanoseconds since the machine's boot, the times included in which it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class ServerClock:
    """UTC as the server has it; before its first answer the machine's own."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is any clock that only goes on."""
        self._now_ns = now_ns
        self._ahead_ns = time.time_ns() - now_ns()

    def learn(self, server_ns: int) -> None:
        """Take what the server has just said; the answer's way is not counted."""
        self._ahead_ns = server_ns - self._now_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return self._ahead_ns + self._now_ns()
