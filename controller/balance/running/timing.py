"""Time that a program reports for moving data and for computing.

    bus, cores = BusyTime(clock), BusyTime(clock)
    with bus:
        batch = received(size)
    with cores:
        trained(batch)

On a GPU both end only when the device has finished: the program waits for its stream inside the block.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from dataplane.clock import Clock


class BusyTime:
    """A meter of the share of time spent inside its `with` blocks; usable from any thread, one at a time.

    A block that is still running counts up to now. Nested blocks, or those of two threads, count once.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._inside, self._entered_ns, self._busy_ns, self._began_ns = 0, 0, 0, clock.now_ns()

    def __enter__(self) -> Self:
        with self._lock:
            if not self._inside:
                self._entered_ns = self._clock.now_ns()
            self._inside += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._busy_ns += self._clock.now_ns() - self._entered_ns

    def begin(self, now_ns: int) -> None:
        """Begin the interval now."""
        with self._lock:
            self._began_ns, self._busy_ns = now_ns, 0
            self._entered_ns = now_ns

    def share(self, now_ns: int) -> float:
        """Return the share of the interval so far that was spent inside; 0 if no time has passed."""
        with self._lock:
            busy_ns = self._busy_ns + (now_ns - self._entered_ns if self._inside else 0)
            passed_ns = now_ns - self._began_ns
        return min(max(busy_ns / passed_ns, 0.0), 1.0) if passed_ns > 0 else 0.0
