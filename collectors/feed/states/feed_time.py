"""Conversion of the feed's times to a reader's clock: a collector has the clock of its own machine."""

from __future__ import annotations

from typing import Final

_SPAN_NS: Final = 10_000_000_000
"""The fastest snapshot of one or two such spans counts, as the clocks of two machines drift apart."""


class FeedTime:
    """Learns from snapshots how far the reader's clock is ahead of the collector's.

    The recent snapshot with the least delay is the best measure: all arrived later than they were taken. Snapshots
    delayed on the way by a stalled process therefore show their age. A collector whose clock restarted, with its
    machine, counts at once.
    """

    def __init__(self) -> None:
        self._least_ns: int | None = None
        self._before_ns: int | None = None
        self._span_begins_ns = 0
        self._taken_ns = 0

    def observe(self, taken_ns: int, arrived_ns: int) -> None:
        """Record a snapshot, with its time by the collector's clock and its arrival by ours."""
        ahead_ns = arrived_ns - taken_ns
        # A feed whose time goes back has another clock: begin anew.
        if self._least_ns is None or taken_ns < self._taken_ns:
            self._least_ns, self._before_ns, self._span_begins_ns = ahead_ns, None, arrived_ns
        elif arrived_ns - self._span_begins_ns > _SPAN_NS:
            self._least_ns, self._before_ns, self._span_begins_ns = ahead_ns, self._least_ns, arrived_ns
        else:
            self._least_ns = min(self._least_ns, ahead_ns)
        self._taken_ns = taken_ns

    @property
    def offset_ns(self) -> int:
        """Offset to add to a time of the feed; 0 before the first snapshot."""
        if self._least_ns is None:
            return 0
        return self._least_ns if self._before_ns is None else min(self._least_ns, self._before_ns)
