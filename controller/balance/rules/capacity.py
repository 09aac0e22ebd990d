"""Worth of a lever's move: the unit's speed after it over its speed before, the common currency of all levers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from controller.balance.values import STEPS, Change, Precision, Sample, UnitState

BITS: Final[Mapping[Precision, int]] = {
    Precision.INT4: 4,
    Precision.INT8: 8,
    Precision.INT16: 16,
    Precision.INT32: 32,
    Precision.BF16: 16,
    Precision.FP16: 16,
    Precision.TF32: 32,
    Precision.FP32: 32,
    Precision.FP64: 64,
}
"""Bits of a number in memory."""
_TF32_BITS: Final = 19
"""Bits of TF32 that tensor cores multiply: a sign, 8 of the exponent, 10 of the fraction."""

Speeds = Mapping[Precision, float]
"""Compute speed of cores relative to int8, by precision."""

SPEEDS: Final[Speeds] = {
    precision: 8 / (_TF32_BITS if precision is Precision.TF32 else bits) for precision, bits in BITS.items()
}
"""Half the bits, twice the speed, as for units with a fixed data path width. A card's data sheet may differ."""


def capacity_ratio(before: UnitState, after: UnitState, speeds: Speeds = SPEEDS) -> float:
    """Return the speed of a unit's cores after its levers moved, over that before.

    Concurrency and power count in proportion, which is the most that they can be worth: cores may already be full, and
    power grows faster than the clock. So a step errs on the small side, and the next one follows.
    """
    return (
        (after.sub_units / before.sub_units)
        * (after.concurrency / before.concurrency)
        * (after.frequency_mhz / before.frequency_mhz)
        * (after.power_w / before.power_w)
        * (speeds[after.precision] / speeds[before.precision])
    )


def stepped(precision: Precision, steps: int, allowed: tuple[Precision, ...]) -> Precision:
    """Return the precision this many steps up (below 0: down) among the allowed ones, stopping at the ends.

    Steps are counted in the order of `Precision`; a precision that is not allowed itself counts as between those that
    are.
    """
    order = list(Precision)
    here = order.index(precision)
    ways = [precision for precision in allowed if (order.index(precision) - here) * steps > 0]
    ways.sort(key=lambda precision: abs(order.index(precision) - here))
    return ways[min(abs(steps), len(ways)) - 1] if steps and ways else precision


def applied(state: UnitState, change: Change, allowed: tuple[Precision, ...] = STEPS) -> UnitState:
    """Return the levers' positions after a change, ignoring all limits except the allowed precisions."""
    return UnitState(
        stepped(state.precision, change.precision_steps, allowed),
        state.frequency_mhz + change.frequency_mhz,
        state.sub_units + change.sub_units,
        state.concurrency + change.concurrency,
        state.power_w + change.power_w,
    )


def is_stopped(state: UnitState) -> bool:
    """Return whether a lever is at a position at which nothing is computed, so that ratios mean nothing."""
    return min(state.sub_units, state.concurrency) < 1 or not min(state.frequency_mhz, state.power_w) > 0


def overshoots(
    change: Change,
    sample: Sample,
    state: UnitState,
    speeds: Speeds = SPEEDS,
    allowed: tuple[Precision, ...] = STEPS,
) -> bool:
    """Return whether a change would move the error to its other side without making it smaller.

    Whatever limits the flow of work, P_p / P_d is the cores' speed over the bus's: it is proportional to the cores'
    speed. So a loop in which no change overshoots reduces |log(P_p / P_d)| with each change, and cannot cycle.
    """
    after = applied(state, change, allowed)
    if not (sample.bus and sample.load) or is_stopped(after):
        return False  # nothing flows, or levers are beyond their stops, which is checked elsewhere
    off = math.log(sample.bus / sample.load)
    return abs(off + math.log(capacity_ratio(state, after, speeds))) >= abs(off)
