"""From a controller's output to changes of levers: the interval table, the platform's rule, handing on; pure."""

from __future__ import annotations

from typing import Protocol

from controller.balance.rules.intervals import TABLE, Interval, IntervalTable, Row
from controller.balance.rules.limits import ORDER, HandedOn, Limits, hand_on
from controller.balance.rules.platform import PlatformRule, wanted_units
from controller.balance.rules.table import IntervalRule
from controller.balance.values import Change, Sample, UnitState


class Rule(Protocol):
    """What a controller's output u, the sample that it is of and the levers' standing ask of the levers."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return what the levers are to do, limits not regarded."""


__all__ = [
    "ORDER",
    "TABLE",
    "HandedOn",
    "Interval",
    "IntervalRule",
    "IntervalTable",
    "Limits",
    "PlatformRule",
    "Row",
    "Rule",
    "hand_on",
    "wanted_units",
]
