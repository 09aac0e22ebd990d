"""The retransmission timeout of RFC 6298, as a value.

Two things follow Linux. The minimum applies to the margin beyond the round trip, so that a delayed acknowledgment
arrives before it on long paths, too. And each acknowledgment is a sample with the RFC's weight, so that a queue that
fills within a round trip is seen at once; only a shrinking variation takes a whole round trip (RFC 7323, appendix G).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RetransmissionTimeout:
    """The smoothed round trip, its variation (both None before the first sample), and the resulting timeout."""

    initial_ns: int
    least_ns: int
    most_ns: int
    smoothed_ns: int | None = None
    variation_ns: int = 0
    backoff: int = 0

    @property
    def timeout_ns(self) -> int:
        """Time to wait for an acknowledgment."""
        base_ns = self.initial_ns
        if self.smoothed_ns is not None:
            base_ns = self.smoothed_ns + max(self.least_ns, 4 * self.variation_ns)
        return min(base_ns << self.backoff, self.most_ns)

    def sampled(self, rtt_ns: int, samples: int = 1) -> RetransmissionTimeout:
        """Return the state after a round trip that yields about this many samples."""
        if self.smoothed_ns is None:
            return replace(self, smoothed_ns=rtt_ns, variation_ns=rtt_ns // 2)
        error_ns = rtt_ns - self.smoothed_ns
        growth_ns = abs(error_ns) - self.variation_ns
        return replace(
            self,
            smoothed_ns=self.smoothed_ns + error_ns // 8,
            variation_ns=self.variation_ns + growth_ns // (4 if growth_ns > 0 else 4 * samples),
        )

    def backed_off(self) -> RetransmissionTimeout:
        """Return the state after an expiry: twice as long."""
        return self if self.timeout_ns >= self.most_ns else replace(self, backoff=self.backoff + 1)

    def recovered(self) -> RetransmissionTimeout:
        """Return the state once data that was sent only once is acknowledged."""
        return replace(self, backoff=0) if self.backoff else self
