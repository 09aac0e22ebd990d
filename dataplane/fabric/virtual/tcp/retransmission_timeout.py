"""The retransmission timeout of RFC 6298, as a value; several samples a round trip are weighed as RFC 7323 says."""

from __future__ import annotations

from dataclasses import dataclass, replace

_GRANULARITY_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class RetransmissionTimeout:
    """The smoothed round trip, its variation (both None before the first sample), and what follows from them."""

    initial_ns: int
    least_ns: int
    most_ns: int
    smoothed_ns: int | None = None
    variation_ns: int = 0
    backoff: int = 0

    @property
    def timeout_ns(self) -> int:
        """How long to wait for an acknowledgment."""
        base_ns = self.initial_ns
        if self.smoothed_ns is not None:
            base_ns = max(self.smoothed_ns + max(_GRANULARITY_NS, 4 * self.variation_ns), self.least_ns)
        return min(base_ns << self.backoff, self.most_ns)

    def sampled(self, rtt_ns: int, samples: int = 1) -> RetransmissionTimeout:
        """Return what follows from a round trip of which there are about so many samples (RFC 7323, appendix G)."""
        if self.smoothed_ns is None:
            return replace(self, smoothed_ns=rtt_ns, variation_ns=rtt_ns // 2)
        error_ns = rtt_ns - self.smoothed_ns
        return replace(
            self,
            smoothed_ns=self.smoothed_ns + error_ns // (8 * samples),
            variation_ns=self.variation_ns + (abs(error_ns) - self.variation_ns) // (4 * samples),
        )

    def backed_off(self) -> RetransmissionTimeout:
        """Return the timeout after one that has passed: twice as long."""
        return self if self.timeout_ns >= self.most_ns else replace(self, backoff=self.backoff + 1)

    def recovered(self) -> RetransmissionTimeout:
        """Return the timeout once something was acknowledged that was sent once."""
        return replace(self, backoff=0) if self.backoff else self
