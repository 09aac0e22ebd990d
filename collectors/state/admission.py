"""Admission to a full table of flows: the heaviest stay, whoever sends them.

A least-recently-used table of 8,192 keeps no flow when 20,000 take turns: each is evicted before its second packet.
Here, as in Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) and its randomised successor (Ben Basat et al.,
INFOCOM 2017), a newcomer replaces the lightest flow only at a price: flows outside the table must have sent as much as
the lightest weighs since the last admission. It inherits that weight, so that a flood of small flows pays more and more
while a flow that sends more than its share of the table is admitted soon and stays. Weights halve with time, and a flow
that has fallen silent weighs nothing.
"""

from __future__ import annotations

from typing import Final

UNIT_BYTES: Final = 64
"""Unit of weights in bytes, rounded up, so that they fit 32 bits."""
LARGEST_WEIGHT: Final = 0xFFFF_FFFF
_BITS: Final = 32


def units_of(nbytes: int) -> int:
    """Return the weight of a packet of `nbytes`."""
    return -(-nbytes // UNIT_BYTES)


def epoch_of(now_ns: int, halving_ns: int) -> int:
    """Return the number of the epoch at a time; weights halve from each epoch to the next."""
    return now_ns // halving_ns & LARGEST_WEIGHT


def decayed(weight: int, epoch: int, now_epoch: int) -> int:
    """Return a weight of an earlier epoch as it counts in this one."""
    return weight >> min(max(now_epoch - epoch, 0), _BITS)


class Credit:
    """Admission's account: what flows outside the table have sent since the last of them was admitted."""

    def __init__(self) -> None:
        self._units = 0

    def admits(self, units: int, lightest: int) -> bool:
        """Add a newcomer's packet; return whether that pays for the lightest flow's place, and take the price then."""
        self._units += units
        if self._units < lightest:
            return False
        self._units = 0
        return True
