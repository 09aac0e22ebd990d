"""Detection of a silent collector feed: snapshots come at every interval even without changes, so silence is a fault.

Times are the path server's; state used for decisions must not be older than the limit.
"""

from __future__ import annotations

from dataplane.clock import NS_PER_S


class FeedWatch:
    """Tracks the newest snapshot's time, and reports once each that the feed fell silent and that it recovered."""

    def __init__(self, limit_ns: int, now_ns: int) -> None:
        self._limit_ns = limit_ns
        self._begun_ns = self._silent_from_ns = now_ns
        self._newest_ns: int | None = None
        self._is_silent = False

    def observe(self, taken_ns: int) -> None:
        """Record a snapshot; an older one changes nothing."""
        self._newest_ns = taken_ns if self._newest_ns is None else max(self._newest_ns, taken_ns)

    def age_ns(self, now_ns: int) -> int | None:
        """Return how old the newest snapshot is, None before the first."""
        return None if self._newest_ns is None else max(now_ns - self._newest_ns, 0)

    def is_old(self, taken_ns: int, now_ns: int) -> bool:
        """Return whether a snapshot is too old to decide by."""
        return now_ns - taken_ns > self._limit_ns

    def is_silent(self, now_ns: int) -> bool:
        """Return whether no state is new enough to decide by."""
        return self.is_old(self._spoke_ns, now_ns)

    @property
    def _spoke_ns(self) -> int:
        return self._begun_ns if self._newest_ns is None else self._newest_ns

    def transition(self, now_ns: int) -> str | None:
        """Return the message when silence has begun or ended since the last call, None if neither."""
        was_silent, self._is_silent = self._is_silent, self.is_silent(now_ns)
        if self._is_silent == was_silent:
            return None
        if not self._is_silent:
            seconds = (now_ns - self._silent_from_ns) / NS_PER_S
            return f"the collector's feed recovered after {seconds:.1f} s; decisions resume"
        age_ns = self.age_ns(now_ns)
        newest = "no state received" if age_ns is None else f"its newest state is {age_ns / NS_PER_S:.1f} s old"
        self._silent_from_ns = self._spoke_ns
        return f"the collector's feed is silent: {newest}; decisions are suspended until it recovers"
