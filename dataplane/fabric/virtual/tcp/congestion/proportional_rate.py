"""Proportional Rate Reduction (RFC 9937), the send allowance during loss recovery, as a value; bytes.

Arrivals set the pace: no burst when half the window is given up, and no more than arrives while losses continue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ProportionalRate:
    """A recovery that began with a given flight size and leads to a threshold; `allowed` may be sent now."""

    mss_bytes: int
    threshold_bytes: int
    at_first_bytes: int  # RecoverFS
    delivered_bytes: int = 0  # prr_delivered
    sent_bytes: int = 0  # prr_out
    allowed_bytes: int = 0

    def delivered(self, nbytes: int, under_way_bytes: int, *, is_safe: bool) -> ProportionalRate:
        """Return the state after a delivery; safe: the stream advances, and nothing else is lost."""
        total = self.delivered_bytes + nbytes
        if under_way_bytes > self.threshold_bytes:
            allowed = -(-total * self.threshold_bytes // max(1, self.at_first_bytes)) - self.sent_bytes
        else:
            allowed = max(total - self.sent_bytes, nbytes) + (self.mss_bytes if is_safe else 0)
            allowed = min(self.threshold_bytes - under_way_bytes, allowed)
        if not self.sent_bytes:
            allowed = max(allowed, self.mss_bytes)  # the first retransmission of the recovery
        return replace(self, delivered_bytes=total, allowed_bytes=max(0, allowed))

    def sent(self, nbytes: int) -> ProportionalRate:
        """Return the state after sending so much."""
        left = max(0, self.allowed_bytes - nbytes)
        return replace(self, sent_bytes=self.sent_bytes + nbytes, allowed_bytes=left)
