"""HyStart as in Linux's CUBIC, as a value: slow start ends before it causes loss (Ha and Rhee, 2008).

Two signs end it, once the window has 16 segments. Delay increase: among the first eight round trips of a round of data
even the minimum exceeds the overall minimum by an eighth, clamped to 4 to 16 ms. ACK train: a train of acknowledgments
at most 2 ms apart has lasted for half of the minimum round trip, so the data in flight fills the path one way.
HyStart++ (RFC 9406) has only the first sign, and slows down for some rounds before acting on it; Linux's CUBIC does
not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from dataplane.clock import NS_PER_MS

LEAST_SEGMENTS: Final = 16
SAMPLES: Final = 8
LEAST_GROWTH_NS: Final = 4 * NS_PER_MS
MOST_GROWTH_NS: Final = 16 * NS_PER_MS
TRAIN_GAP_NS: Final = 2 * NS_PER_MS
_MOST_CUSHION_NS: Final = NS_PER_MS
_BURST_BYTES: Final = 4 << 16
"""Bytes that segmentation offload may hold back, by which Linux extends a train (pacing at twice cwnd a round trip)."""


@dataclass(frozen=True, slots=True)
class Heard:
    """An acknowledgment of everything before `position` when everything before `sent` has been sent; its round trip."""

    now_ns: int
    rtt_ns: int
    position: int
    sent: int


@dataclass(frozen=True, slots=True)
class Hystart:
    """The minimum round trip; of the current round its end, start, last ACK of the train, minimum and samples."""

    least_rtt_ns: int | None = None  # delay_min
    round_end: int = 0
    round_ns: int = 0
    train_ns: int = 0
    round_rtt_ns: int | None = None  # curr_rtt
    samples: int = 0
    is_found: bool = False
    """Slow start should end."""

    def heard(self, heard: Heard, window_bytes: int, mss_bytes: int) -> Hystart:
        """Return the state after an acknowledgment in slow start."""
        least_ns = heard.rtt_ns if self.least_rtt_ns is None else min(self.least_rtt_ns, heard.rtt_ns)
        now = replace(self, least_rtt_ns=least_ns)
        if heard.position > self.round_end:
            now = replace(
                now, round_end=heard.sent, round_ns=heard.now_ns, train_ns=heard.now_ns, round_rtt_ns=None, samples=0
            )
        if now.is_found or window_bytes < LEAST_SEGMENTS * mss_bytes:
            return now
        return now.followed(heard, window_bytes, least_ns).sampled(heard.rtt_ns, least_ns)

    def followed(self, heard: Heard, window_bytes: int, least_ns: int) -> Hystart:
        """Return the state given its arrival time, which continues or ends the train of acknowledgments."""
        if heard.now_ns - self.train_ns > TRAIN_GAP_NS:
            return self
        cushion_ns = min(_MOST_CUSHION_NS, _BURST_BYTES * least_ns // (2 * window_bytes))
        is_found = heard.now_ns - self.round_ns > (least_ns + cushion_ns) // 2
        return replace(self, train_ns=heard.now_ns, is_found=is_found)

    def sampled(self, rtt_ns: int, least_ns: int) -> Hystart:
        """Return the state given its delay: after eight samples in a round even the minimum may prove too long."""
        round_ns = rtt_ns if self.round_rtt_ns is None else min(self.round_rtt_ns, rtt_ns)
        if self.samples < SAMPLES:
            return replace(self, round_rtt_ns=round_ns, samples=self.samples + 1)
        growth_ns = min(max(least_ns // 8, LEAST_GROWTH_NS), MOST_GROWTH_NS)
        return replace(self, round_rtt_ns=round_ns, is_found=self.is_found or round_ns > least_ns + growth_ns)
