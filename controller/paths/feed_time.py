"""The feed's times by the path server's clock: a collector's clock is that of its own machine."""

from __future__ import annotations

from typing import Final

_ANEW_NS: Final = 1_000_000_000
"""A clock that is this far behind what it was began anew, with its machine."""


class FeedTime:
    """Learns from snapshots what the path server's clock is ahead of the collector's.

    The quickest snapshot tells best: all came later than they were taken.
    """

    def __init__(self) -> None:
        self._offset_ns: int | None = None

    def hear(self, taken_ns: int, arrived_ns: int) -> None:
        """Take note of a snapshot, taken by the collector's clock and arrived by ours."""
        ahead_ns = arrived_ns - taken_ns
        if self._offset_ns is None or not self._offset_ns <= ahead_ns <= self._offset_ns + _ANEW_NS:
            self._offset_ns = ahead_ns

    @property
    def offset_ns(self) -> int:
        """What to add to a time of the feed; 0 before the first snapshot."""
        return self._offset_ns or 0
