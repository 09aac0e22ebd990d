"""Interface of a congestion control, without clock or packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, Self

LEAST_WINDOW_SEGMENTS: Final = 2
"""Minimum ssthresh after a loss, in segments (RFC 5681, equation 4)."""
UNLIMITED: Final = 1 << 62
"""Initial ssthresh, before any loss."""


@dataclass(frozen=True, slots=True)
class Acked:
    """An acknowledgment of new data.

    `is_limited`: the window, not the program or the receiver, kept the sender from sending more. `after_timeout`: the
    losses of that time have not been repaired yet. `rtt_ns` is the smoothed round trip, `sample_ns` that of the
    acknowledged data, None if it was sent twice; `position` is the next one expected by the receiver, `sent` the next
    to be sent.
    """

    nbytes: int
    now_ns: int
    rtt_ns: int
    is_limited: bool = True
    after_timeout: bool = False
    sample_ns: int | None = None
    position: int = 0
    sent: int = 0


class CongestionControl(Protocol):
    """A congestion window and the state that governs it, as a value; bytes."""

    @classmethod
    def start(cls, mss_bytes: int, initial_segments: int, *, hystart: bool) -> Self:
        """Return the state of a new connection; `hystart` allows a control to end slow start by delays."""
        ...

    @property
    def window_bytes(self) -> int:
        """Congestion window (cwnd)."""
        ...

    @property
    def threshold_bytes(self) -> int:
        """Slow start threshold (ssthresh)."""
        ...

    def acked(self, heard: Acked) -> Self:
        """Return the state after an acknowledgment while nothing is being repaired, or after a timeout."""
        ...

    def reduced(self, flight_bytes: int) -> Self:
        """Return the state after congestion (a loss or a mark), noticed at the given flight size."""
        ...

    def timed_out(self, flight_bytes: int, *, again: bool) -> Self:
        """Return the state after a retransmission timeout, with `again` for a repeated one of the same data."""
        ...

    def restarted(self, initial_bytes: int) -> Self:
        """Return the state after an idle period so long that nothing is known about the path any more."""
        ...


def slow_start_bytes(heard: Acked, mss_bytes: int) -> int:
    """Return the slow start increment: the bytes acknowledged, but at most one burst of them.

    RFC 3465, sections 2.2 and 2.3: two segments' worth, so that delayed acknowledgments do not slow it down, and one
    after a timeout.
    """
    return min(heard.nbytes, mss_bytes if heard.after_timeout else 2 * mss_bytes)
