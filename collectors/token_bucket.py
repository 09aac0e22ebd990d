"""Rate limit of operations per second: a bucket that refills over time."""

from __future__ import annotations

from dataplane.clock import NS_PER_S, Clock


class TokenBucket:
    """Allows `per_s` operations a second, and a burst of as many as accumulate in `burst_ns`."""

    def __init__(self, per_s: int, clock: Clock, burst_ns: int = NS_PER_S) -> None:
        self._per_s = per_s
        self._clock = clock
        self._burst_ns = burst_ns
        self._full_ns = clock.now_ns()
        """Time at which the bucket is, or was, full."""

    @property
    def left(self) -> int:
        """Number of operations allowed now; negative after overspending."""
        now_ns = self._clock.now_ns()
        self._full_ns = max(self._full_ns, now_ns)
        return (now_ns + self._burst_ns - self._full_ns) * self._per_s // NS_PER_S

    def take(self, wanted: int) -> int:
        """Return how many of those wanted are allowed now."""
        allowed = max(min(wanted, self.left), 0)
        self._full_ns += allowed * NS_PER_S // self._per_s
        return allowed

    def spend(self, amount: int) -> None:
        """Charge an amount that is already spent, even beyond what is left."""
        self._full_ns = max(self._full_ns, self._clock.now_ns()) + amount * NS_PER_S // self._per_s
