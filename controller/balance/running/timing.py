"""What a program says of itself: how long it moved data, and how long it computed.

    bus, cores = BusyTime(clock), BusyTime(clock)
    with bus:
        batch = received(size)
    with cores:
        trained(batch)

On a GPU both are over only when the device has done them: the program waits for its stream inside the block.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from dataplane.clock import Clock


class BusyTime:
    """A meter of the share of time that is spent inside its `with` blocks; of any thread, one at a time.

    A block that still runs counts as far as it got. Nested blocks, or those of two threads, count once.
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
        """Have the interval begin now."""
        with self._lock:
            self._began_ns, self._busy_ns = now_ns, 0
            self._entered_ns = now_ns

    def share(self, now_ns: int) -> float:
        """Return the share of the interval until now that was spent inside; 0 where no time has passed."""
        with self._lock:
            busy_ns = self._busy_ns + (now_ns - self._entered_ns if self._inside else 0)
            passed_ns = now_ns - self._began_ns
        return min(max(busy_ns / passed_ns, 0.0), 1.0) if passed_ns > 0 else 0.0
