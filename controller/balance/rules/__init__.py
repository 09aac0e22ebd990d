"""Maps a controller's output to changes of levers: the interval table, the platform's rule, handover; pure."""

from __future__ import annotations

from typing import Protocol

from controller.balance.rules.intervals import TABLE, Interval, IntervalTable, Row
from controller.balance.rules.limits import ORDER, HandedOn, Limits, hand_on
from controller.balance.rules.platform import PlatformRule, wanted_units
from controller.balance.rules.table import IntervalRule
from controller.balance.values import Change, Sample, UnitState


class Rule(Protocol):
    """Maps a controller's output u, its sample and the levers' positions to a change of the levers."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return the requested change, ignoring limits."""


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
