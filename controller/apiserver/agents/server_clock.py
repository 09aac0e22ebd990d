"""The API server's time, taken from its answers: the local clock may be wrong."""

from __future__ import annotations

import time
from collections.abc import Callable


def boot_time_ns() -> int:
    """Return nanoseconds since boot, including time spent asleep."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class ServerClock:
    """UTC according to the server; the local clock until the first answer."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        """`now_ns` is any monotonic clock."""
        self._now_ns = now_ns
        self._ahead_ns = time.time_ns() - now_ns()

    def learn(self, server_ns: int) -> None:
        """Record the time in a server's answer; network delay is ignored."""
        self._ahead_ns = server_ns - self._now_ns()

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return self._ahead_ns + self._now_ns()
