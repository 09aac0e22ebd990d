"""A flow's rate from the packets that were measured: bytes over a sliding window."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

FRAMING_BYTES: Final = 38
"""What Ethernet adds to an IP packet on the wire: header 14, checksum 4, preamble 8, gap 12."""

SLOTS: Final = 8
"""Parts of the window whose packets are kept as one sum: a flow costs as much memory at any rate."""

_YOUNGEST: Final = 16
"""A flow counts as at least this part (one over) of the window old: rather too high a rate at first than none, since a
new flow that is taken for silent is moved where it has no room."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The span that a rate is taken over, in slots that leave it whole."""

    window_ns: int

    @property
    def slot_ns(self) -> int:
        """How long a slot is."""
        return max(1, self.window_ns // SLOTS)

    def oldest_slot(self, now_ns: int) -> int:
        """Return the number of the oldest slot that counts."""
        return now_ns // self.slot_ns - SLOTS + 1

    def rate_bps(self, nbytes: int, first_ns: int, now_ns: int) -> int:
        """Return bit/s over the window, or over the flow's life while it is younger."""
        # The window begins with a whole slot, as what leaves it does.
        begins_ns = self.oldest_slot(now_ns) * self.slot_ns
        span_ns = max(now_ns - max(first_ns, begins_ns), self.window_ns // _YOUNGEST, 1)
        return nbytes * 8 * 1_000_000_000 // span_ns


class RateMeter:
    """Bytes of the last `window_ns`, to one part in `SLOTS`; times must not decrease."""

    def __init__(self, window_ns: int) -> None:
        self._window = RateWindow(window_ns)
        self._slots: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._first_ns: int | None = None

    def add(self, now_ns: int, nbytes: int) -> None:
        """Count a packet that was seen now, with the bytes of those that it stands for."""
        if self._first_ns is None:
            self._first_ns = now_ns
        self._bytes += nbytes
        number = now_ns // self._window.slot_ns
        if self._slots and self._slots[-1][0] == number:
            self._slots[-1] = number, self._slots[-1][1] + nbytes
        else:
            self._slots.append((number, nbytes))
        self._prune(now_ns)

    def rate_bps(self, now_ns: int) -> int | None:
        """Return bit/s over the window, or over the flow's life while it is younger; None before its first packet."""
        if self._first_ns is None:
            return None
        self._prune(now_ns)
        return self._window.rate_bps(self._bytes, self._first_ns, now_ns)

    @property
    def nbytes(self) -> int:
        """The bytes that were counted in the window, as it was when it was asked for a rate."""
        return self._bytes

    def _prune(self, now_ns: int) -> None:
        oldest = self._window.oldest_slot(now_ns)
        while self._slots and self._slots[0][0] < oldest:
            self._bytes -= self._slots.popleft()[1]
