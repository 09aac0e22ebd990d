"""A budget for reports that Python reads one by one, at hundreds of times the cost of native code."""

from __future__ import annotations

from typing import Final

from collectors.settings import CollectorSettings
from collectors.token_bucket import TokenBucket
from dataplane.clock import NS_PER_S, Clock

BURST_NS: Final = 40_000_000
"""Longest time that Python may take at once after a quiet time; the kernel's buffer holds what arrives meanwhile."""


class ReadingBudget:
    """Counts and times Python's reading.

    Without `is_limited` everything is allowed: for a core that reads every report in Python anyway.
    """

    def __init__(self, settings: CollectorSettings, clock: Clock, *, is_limited: bool) -> None:
        self._clock = clock
        others = settings.other_reports_per_s if is_limited else None
        self._others = None if others is None else TokenBucket(others, clock)
        per_s = max(int(settings.python_share * NS_PER_S), 1)
        self._time = TokenBucket(per_s, clock, BURST_NS)

    def now_ns(self) -> int:
        """Return the current time, for `charge` to count from."""
        return self._clock.now_ns()

    def charge(self, began_ns: int) -> None:
        """Count the time since `began_ns` as spent on one report."""
        self._time.spend(max(self._clock.now_ns() - began_ns, 0))

    @property
    def allows_other(self) -> bool:
        """Return whether a report that only Python can read may be read now."""
        return self._others is None or (self._others.left > 0 and self._time.left > 0)

    def take_other(self) -> None:
        """Count a report that only Python reads."""
        if self._others is not None:
            self._others.take(1)
