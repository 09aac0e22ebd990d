"""The rule of the interval table, with single or combined levers, and no step across the dead band and beyond."""

from __future__ import annotations

from typing import Annotated

import msgspec

from controller.balance.rules.capacity import overshoots
from controller.balance.rules.intervals import TABLE, IntervalTable
from controller.balance.rules.limits import ORDER
from controller.balance.values import Change, LeverKind, Sample, UnitState
from dataplane.config import Strict


class IntervalRule(Strict, frozen=True):
    """Moves the levers step by step, as the row of u says."""

    table: IntervalTable = TABLE
    levers: tuple[LeverKind, ...] = ORDER
    """Levers that it may move; also the order of handover from an exhausted one."""
    guarded: bool = True
    """Leave out a step that would push |e| past 0 and further away than it is: few coarse sub-units would oscillate."""

    asks_from_load: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Minimum load of the cores for asking for faster ones; 0: any load, as in the table.

    Under a light load, of 25 % of the bus and 50 % of the cores, nothing waits, and additional units would idle.
    """

    def __post_init__(self) -> None:
        if not self.levers:
            raise ValueError("levers: at least one needed")
        if len(set(self.levers)) < len(self.levers):
            raise ValueError("levers: duplicate lever")

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:
        """Return the change of the levers; raise RuleError if u is NaN."""
        if u < 0 and sample.load < self.asks_from_load:
            return Change()
        change = only(self.table.change_at(u), self.levers)
        if not self.guarded or change.keeps or u * sample.error <= 0:
            return change
        lesser = Change(sub_units=change.sub_units, concurrency=change.concurrency)
        least = Change(sub_units=_sign(change.sub_units), concurrency=_sign(change.concurrency))
        return next(
            (candidate for candidate in (change, lesser, least) if not overshoots(candidate, sample, state)), Change()
        )


def only(change: Change, levers: tuple[LeverKind, ...]) -> Change:
    """Return a change restricted to some levers."""
    return Change(
        change.precision_steps if LeverKind.PRECISION in levers else 0,
        change.frequency_mhz if LeverKind.FREQUENCY in levers else 0.0,
        change.sub_units if LeverKind.SUB_UNITS in levers else 0,
        change.concurrency if LeverKind.CONCURRENCY in levers else 0,
        change.power_w if LeverKind.POWER in levers else 0.0,
    )


def _sign(count: int) -> int:
    return (count > 0) - (count < 0)
