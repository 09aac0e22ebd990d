"""Gaps between a flow's measured packets, by the stamps of its first switch: how regularly the flow sends.

With random arrivals, n packets give a rate with a standard deviation of one in the square root of n; packets of a
clocked stream, or every k-th packet, tell more. That is learned slowly: the first gap counts as one of a random flow.
The gaps also show, between two rounds of decisions, which flows send more than in the last round.

All arithmetic is in integers, so that `collectors.native.kernels.state.gaps` gives identical figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REMEMBERED: Final = 16
"""Number of gaps that count fully: older ones weigh less."""
PAUSE: Final = 16
"""Multiple of the mean gap that counts as a pause, after which learning restarts."""
LONGEST_GAP_NS: Final = 1 << 35
"""A gap of 34 s is a pause after any mean; fixed-point numbers of longer ones would not fit 64 bits."""
TELLING: Final = 4
"""Number of gaps that give a rate worth reporting."""
MEAN_BITS: Final = 8
"""Bits of a mean behind the point, in ns."""
RATIO_BITS: Final = 16
VARIATION_BITS: Final = 2 * RATIO_BITS
CHANCE: Final = 1 << VARIATION_BITS
"""The variation of random arrivals: 1."""
GROWN: Final = 5, 4
"""A flow is news if it sends more than 5/4 of its known rate."""


@dataclass(slots=True)
class FlowGaps:
    """Statistics of a flow's gaps: their number, their mean, and their variance as a share of the mean's square.

    `mean` is in ns with `MEAN_BITS` fractional bits, 0 before the first gap; `known_mean` is the one reported last, 0
    for none; `variation` has `VARIATION_BITS` fractional bits.
    """

    last_ns: int | None = None
    count: int = 0
    mean: int = 0
    variation: int = CHANCE
    known_mean: int = 0
    round: int = 0

    def note(self, stamp_ns: int, round_: int) -> int:
        """Note when a packet arrived at its first switch; return the mean known before, if the flow has outgrown it.

        -1 means that it has not: 0 is the known mean of a flow with too few packets.
        """
        if self.last_ns is None:
            self.last_ns, self.round = stamp_ns, round_
            return -1
        if self.round != round_:
            self.round, self.known_mean = round_, self._telling_mean
        if stamp_ns > self.last_ns:
            self._add(stamp_ns - self.last_ns)
        elif (self.last_ns - stamp_ns) << MEAN_BITS > PAUSE * self.mean:
            # Not a packet that was overtaken: the clock was set back, or restarted.
            self._restart()
        else:
            return -1
        self.last_ns = stamp_ns
        return self._outgrown()

    @property
    def mean_ns(self) -> int | None:
        """The mean gap, None before there were any."""
        return self.mean >> MEAN_BITS if self.count else None

    @property
    def share(self) -> float:
        """The variance as a share of the mean's square, 1 at most."""
        return min(self.variation, CHANCE) / CHANCE

    @property
    def _telling_mean(self) -> int:
        return self.mean if self.count >= TELLING else 0

    def _restart(self) -> None:
        self.count, self.mean, self.variation = 0, 0, CHANCE

    def _add(self, gap_ns: int) -> None:
        gap = gap_ns << MEAN_BITS
        if gap_ns >= LONGEST_GAP_NS or (self.count and gap > PAUSE * self.mean):
            self._restart()
            return
        self.count = min(self.count + 1, REMEMBERED)
        if self.count == 1:
            self.mean = gap
            return
        ratio = (abs(gap - self.mean) << RATIO_BITS) // self.mean
        self.variation += (ratio * ratio - self.variation) // self.count
        self.mean += (gap - self.mean) // self.count

    def _outgrown(self) -> int:
        mean, known_mean = self._telling_mean, self.known_mean
        if not mean or (known_mean and GROWN[0] * mean >= GROWN[1] * known_mean):
            return -1
        self.known_mean = mean
        return known_mean


def more_hz(mean: int, known_mean: int) -> float:
    """Return by how many packets per second a mean gap is faster than the known one; 0 stands for no known gap.

    It is 0 where nothing is left of a flow's growth: it fell back since, and has grown again from there.
    """
    per_s = 1e9 * (1 << MEAN_BITS)
    return max(per_s / mean - (per_s / known_mean if known_mean else 0.0), 0.0)
