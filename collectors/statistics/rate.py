"""A flow's rate from the packets that were measured: bytes over a sliding window.

Packets count at the times at which they came to their first switch, where its stamps show that: behind a queue that
grows they come out at the rate of the link, whatever is sent. Those times run from the first packet's arrival; only
differences of stamps count, so that the clocks need not agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from collectors.statistics.columns import Integers
from dataplane.clock import NS_PER_S

FRAMING_BYTES: Final = 38
"""Bytes that Ethernet adds to an IP packet on the wire: header 14, checksum 4, preamble 8, gap 12."""

SLOTS: Final = 8
"""Parts of the window whose packets are kept as one sum: a flow costs as much memory at any rate."""

_YOUNGEST: Final = 16
"""A flow counts as at least this part (one over) of the window old: too high a rate at first is better than none,
since a new flow that is taken for silent is moved where it has no room.
"""

_STEP: Final = 100_000
_LARGEST: Final = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class RateWindow:
    """The span over which a rate is measured, in slots that expire as a whole."""

    window_ns: int

    @property
    def slot_ns(self) -> int:
        """Length of a slot."""
        return max(1, self.window_ns // SLOTS)

    def oldest_slot(self, now_ns: int) -> int:
        """Return the number of the oldest slot that counts."""
        return now_ns // self.slot_ns - SLOTS + 1

    def begins_ns(self, now_ns: int) -> int:
        """Return the beginning of the window, which is a slot's beginning as slots expire as a whole."""
        return self.oldest_slot(now_ns) * self.slot_ns

    def rate_bps(self, nbytes: int, first_ns: int, now_ns: int) -> int:
        """Return bit/s over the window, or over the flow's life while it is younger."""
        span_ns = max(now_ns - max(first_ns, self.begins_ns(now_ns)), self.window_ns // _YOUNGEST, 1)
        return nbytes * 8 * NS_PER_S // span_ns

    def begin_ns(self, now_ns: Integers) -> Integers:
        """Return the beginning of the window at each of several times."""
        begins: Integers = (now_ns // self.slot_ns - SLOTS + 1) * self.slot_ns
        return begins

    def rates_bps(self, nbytes: Integers, every: int, first_ns: Integers, now_ns: Integers) -> Integers:
        """Return `rate_bps` of many flows, of whose packets one in `every` was counted."""
        begun_ns = np.maximum(first_ns, self.begin_ns(now_ns))
        span_ns = np.maximum(now_ns - begun_ns, max(self.window_ns // _YOUNGEST, 1))
        most_bps = 8 * NS_PER_S * every * int(nbytes.max(initial=0)) // int(span_ns.min(initial=_LARGEST))
        if most_bps > _LARGEST or int(span_ns.max(initial=0)) >= _LARGEST // max(every, _STEP):
            rows = zip(nbytes.tolist(), first_ns.tolist(), now_ns.tolist(), strict=True)
            rates_bps = (self.rate_bps(count * every, first, now) for count, first, now in rows)
            return np.array([min(rate_bps, _LARGEST) for rate_bps in rates_bps], np.int64)
        # bytes * 8 * every * 10^9 / span, rounded down, a factor at a time: the whole product would overflow.
        whole, rest = np.divmod(nbytes * 8, span_ns)
        for factor in (every, _STEP, NS_PER_S // _STEP):
            more, rest = np.divmod(rest * factor, span_ns)
            whole = whole * factor + more
        rates: Integers = whole
        return rates

    @property
    def lead_ns(self) -> int:
        """Largest difference between the time between two stamps and that between the packets' arrivals."""
        return self.window_ns // 2

    def sent_ns(self, now_ns: int, newest_ns: int, between_stamps_ns: int, between_arrivals_ns: int) -> int:
        """Return when a packet that comes now was sent, given when the one before was and what lies between the two.

        Now, where the stamps cannot be of one clock that was not set meanwhile.
        """
        sent_ns = max(newest_ns + between_stamps_ns, 0)
        is_one_clock = abs(between_stamps_ns - between_arrivals_ns) <= self.lead_ns
        return sent_ns if is_one_clock and sent_ns <= now_ns + self.lead_ns else now_ns


class RateMeter:
    """Bytes of the last `window_ns`, to one part in `SLOTS`, without older ones."""

    def __init__(self, window_ns: int) -> None:
        self.window = RateWindow(window_ns)
        self._slots: dict[int, int] = {}
        self._first_ns: int | None = None
        self.newest_ns = 0
        """The newest time at which a packet was counted."""

    @property
    def has_counted(self) -> bool:
        """Return whether any packet was counted."""
        return self._first_ns is not None

    def add(self, at_ns: int, nbytes: int) -> None:
        """Count a packet that was sent at a time, with the bytes of all packets that it represents."""
        if self._first_ns is None:
            self._first_ns = self.newest_ns = at_ns
        self.newest_ns = max(self.newest_ns, at_ns)
        number = at_ns // self.window.slot_ns
        if number >= self.window.oldest_slot(self.newest_ns):
            self._slots[number] = self._slots.get(number, 0) + nbytes
        oldest = self.window.oldest_slot(self.newest_ns)
        for old in [number for number in self._slots if number < oldest]:
            del self._slots[old]

    def rate_bps(self, now_ns: int) -> int | None:
        """Return bit/s over the window, or over the flow's life while it is younger; None before its first packet."""
        if self._first_ns is None:
            return None
        return self.window.rate_bps(self.nbytes(now_ns), self._first_ns, now_ns)

    def is_young(self, now_ns: int) -> bool:
        """Return whether the window began before the first packet, which the rate then counts without its duration."""
        return self._first_ns is not None and self._first_ns > self.window.begins_ns(now_ns)

    def nbytes(self, now_ns: int) -> int:
        """Return the bytes that were counted in the window."""
        oldest = self.window.oldest_slot(now_ns)
        return sum(nbytes for number, nbytes in self._slots.items() if number >= oldest)
