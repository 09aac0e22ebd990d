"""Time that a program spends moving data, or computing."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from dataplane.clock import Clock


class BusyCounter:
    """Counts the time spent inside its `with` blocks, since its creation; usable from any thread.

    `busy_ns` counts nested blocks, and those of several threads, once; `thread_ns` adds them up. A block that is still
    running counts up to now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._inside, self._busy_ns, self._thread_ns, self._at_ns = 0, 0, 0, clock.now_ns()

    def __enter__(self) -> Self:
        with self._lock:
            self._count(self._clock.now_ns())
            self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._count(self._clock.now_ns())
            self._inside -= 1

    def busy_ns(self, now_ns: int) -> int:
        """Return the time in which any block was running."""
        with self._lock:
            self._count(now_ns)
            return self._busy_ns

    def thread_ns(self, now_ns: int) -> int:
        """Return the time of all blocks together."""
        with self._lock:
            self._count(now_ns)
            return self._thread_ns

    def _count(self, now_ns: int) -> None:
        passed_ns = max(now_ns - self._at_ns, 0)  # another thread may have read the clock later, and counted first
        self._thread_ns += self._inside * passed_ns
        self._busy_ns += passed_ns if self._inside else 0
        self._at_ns += passed_ns
