"""What a congestion control is told, and what it answers; no clock, no packets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, Self

LEAST_WINDOW_SEGMENTS: Final = 2
"""Below that no loss takes ssthresh (RFC 5681, equation 4)."""
UNLIMITED: Final = 1 << 62
"""ssthresh before anything was lost."""


@dataclass(frozen=True, slots=True)
class Acked:
    """New data was acknowledged.

    `is_limited`: the window, not the program or the receiver, kept the sender from sending more. `after_timeout`: what
    was lost then has not been repaired yet. `rtt_ns` is the smoothed round trip, `sample_ns` that of what was
    acknowledged, None where it was sent twice; `position` the first that is awaited, `sent` the next to be sent.
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
    """A congestion window and what decides about it, as a value; bytes."""

    @property
    def window_bytes(self) -> int:
        """How much may be under way: cwnd."""
        ...

    @property
    def threshold_bytes(self) -> int:
        """Where slow start ends: ssthresh."""
        ...

    def acked(self, heard: Acked) -> Self:
        """Return what follows from an acknowledgment while nothing is being repaired, or after a timeout."""
        ...

    def reduced(self, flight_bytes: int) -> Self:
        """Return what follows from congestion (a loss, or a mark), noticed with so much under way."""
        ...

    def timed_out(self, flight_bytes: int, *, again: bool) -> Self:
        """Return what follows from a retransmission timeout, of the same data `again` maybe."""
        ...

    def restarted(self, initial_bytes: int) -> Self:
        """Return what is left of the window after so long a pause that nothing is known of the path any more."""
        ...


def slow_start_bytes(heard: Acked, mss_bytes: int) -> int:
    """Return how much slow start adds: what was acknowledged, but not more than one burst of it.

    RFC 3465, sections 2.2 and 2.3: two segments' worth, so that delayed acknowledgments do not slow it down, and one
    after a timeout.
    """
    return min(heard.nbytes, mss_bytes if heard.after_timeout else 2 * mss_bytes)
