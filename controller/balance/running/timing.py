"""Time that a program reports for moving data and for computing.

    bus, cores = BusyTime(clock), BusyTime(clock)
    with bus:
        batch = received(size)
    with cores:
        trained(batch)

On a GPU both end only when the device has finished: the program waits for its stream inside the block.
"""

from __future__ import annotations

from dataplane.balance.timing import BusyCounter
from dataplane.clock import Clock


class BusyTime(BusyCounter):
    """A meter of the share of an interval spent inside its `with` blocks; those of several threads count once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._began_ns, self._before_ns = clock.now_ns(), 0

    def begin(self, now_ns: int) -> None:
        """Begin the interval now."""
        self._began_ns, self._before_ns = now_ns, self.busy_ns(now_ns)

    def share(self, now_ns: int) -> float:
        """Return the share of the interval so far that was spent inside; 0 if no time has passed."""
        passed_ns = now_ns - self._began_ns
        return min(max((self.busy_ns(now_ns) - self._before_ns) / passed_ns, 0.0), 1.0) if passed_ns > 0 else 0.0
