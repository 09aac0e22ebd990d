"""A plant linearised near its balance, for stability margins: the decrease of the error per output."""

from __future__ import annotations

import math

from controller.balance.control.linear import LinearPlant
from controller.balance.errors import PlantError
from controller.balance.plants.plant import Plant
from controller.balance.rules import Interval, IntervalRule
from controller.balance.rules.capacity import applied, capacity_ratio
from controller.balance.rules.table import only
from controller.balance.values import UnitState


def linearised(
    plant: Plant, unit: UnitState, offered_tops: float, rule: IntervalRule, period_s: float = 1.0
) -> LinearPlant:
    """Return the plant at rest as seen by a loop with one sample per period, its levers moved by an interval table.

    A table is a staircase, not a line: its gain is the steepest line from the middle of the dead band to any of its
    steps, so that a margin covers the worst of them. The error falls by the logarithm of the cores' speed times the
    larger of bus occupancy and load: e = w / B - w / C, where the slower of bus B and cores C gives the work w under
    overload, and the load does otherwise. Raise PlantError if no step of the rule moves anything.
    """
    rest = plant.rest(unit, offered_tops)
    steepest = 0.0
    for row in rule.table.rows:
        change, inner = only(row.change, rule.levers), _inner_end(row.interval)
        if change.keeps or not inner:
            continue
        after = applied(unit, change, plant.application.precisions)
        if after.sub_units >= 1 and after.frequency_mhz > 0:
            steepest = max(steepest, abs(math.log(capacity_ratio(unit, after, plant.speeds))) / inner)
    gain = max(rest.bus, rest.load) * steepest
    if not gain > 0.0:
        raise PlantError("no step of the rule moves the error: the unit is idle, or the rule moves none of its levers")
    return LinearPlant(gain=gain, delay_samples=math.ceil(plant.delay_s / period_s), accumulates=True)


def _inner_end(interval: str) -> float:
    parsed = Interval.parse(interval)
    return float(min(abs(parsed.low), abs(parsed.high)))
