"""Data structures of traffic engineering's kernels, in memory shared with Python."""

from __future__ import annotations

from typing import Final

from dataplane.native import Array, Struct, u32, u64

STEPS: Final = 10
"""Binary digits after the point of an exponent of `power`."""
SLOPE_BITS: Final = 40
"""Binary digits after the point of `slope`."""
POWER_BITS: Final = 20
"""Binary digits after the point of `power`."""
TOP: Final = 8
"""A link's price rises to at most 2 to the power of this, times that of a link at the scale."""


class Prices(Struct):
    """Loads of all links and the costs that follow from them; arrays are by link, `entering` in the order of `in_link`.

    A link with load x costs `delay` + `factor` * 2 ** (x * slope - sharpness), with x * slope = sharpness at the scale.
    """

    sharpness: u64
    load: Array[u64]
    factor: Array[u64]
    slope: Array[u64]
    most: Array[u64]
    """Load from which the price no longer rises."""
    delay: Array[u64]
    power: Array[u64]
    """Powers of 2 from 0 up to 1, by 2 ** `STEPS` exponents."""
    cost: Array[u64]
    entering: Array[u64]
    place: Array[u32]
    """Position of each link in `in_link`."""


class Walk(Struct):
    """Scratch memory for one destination, by switch."""

    serial: u64
    distance: Array[u64]
    towards: Array[u32]
    """Link of the cheapest tree."""
    along: Array[u32]
    """First link of the dearest path that has traffic."""
    dearest: Array[u64]
    order: Array[u32]
    waiting: Array[u32]
    passing: Array[u64]
    stamp: Array[u64]
    position: Array[u32]
    tree: Array[u32]
    used: Array[u32]
    rest: Array[u64]
    """By link: remainders while weights are rounded."""
