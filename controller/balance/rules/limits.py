"""Limits of levers, and handover from an exhausted lever to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from controller.balance.errors import RuleError
from controller.balance.rules.capacity import SPEEDS, Speeds, applied, capacity_ratio, overshoots, stepped
from controller.balance.values import Change, LeverKind, Precision, Sample, UnitState
from dataplane.config import Strict

ORDER: Final = (LeverKind.SUB_UNITS, LeverKind.FREQUENCY, LeverKind.PRECISION)
"""Order of handover: sub-units while there are any, then the clock, and accuracy is given up last."""
_LEAST_RATIO: Final = 0.1
"""Minimum ratio of a change: one that would reduce a lever further asks for this ratio of its position."""
_SLACK: Final = 1e-9

Clock = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Limits(Strict, frozen=True):
    """Range of each lever of a unit; a lever that may not be moved has both ends at its position."""

    precisions: tuple[Precision, ...] = tuple(Precision)
    """Precisions that the application allows."""
    frequency_low_mhz: Clock = 1.0
    frequency_high_mhz: Annotated[float, msgspec.Meta(gt=0)] = math.inf
    frequency_step_mhz: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Clocks are at whole multiples of this above the low end; 0: anywhere."""
    sub_units_low: Count = 1
    """The minimum share, which is never given away."""
    sub_units_high: Count = 1_000_000

    def __post_init__(self) -> None:
        if not self.precisions:
            raise ValueError("precisions: at least one needed")
        if not self.frequency_low_mhz <= self.frequency_high_mhz:
            raise ValueError("frequency_low_mhz is above frequency_high_mhz")
        if not self.sub_units_low <= self.sub_units_high:
            raise ValueError("sub_units_low is above sub_units_high")


@dataclass(frozen=True, slots=True)
class HandedOn:
    """The feasible part of a request: the change, and the speed ratio that no lever could provide (1: nothing)."""

    change: Change
    left: float = 1.0


def hand_on(
    change: Change,
    state: UnitState,
    limits: Limits,
    *,
    order: Sequence[LeverKind] = ORDER,
    speeds: Speeds = SPEEDS,
    most: Change | None = None,
    sample: Sample | None = None,
) -> HandedOn:
    """Return a change within the levers' limits; the rest of an exhausted lever goes to the next in `order`.

    The handed-over rest is a ratio of speeds: 50 more units on top of 150 that are unavailable become 4/3 of the clock,
    and the rest of the clock goes to precision, which takes the allowed one with the closest speed, or none if each
    would be further off than staying. Only limits exhaust a lever, never its step size. `most` bounds a lever's step
    after a handover (its own request is never cut by it). With a `sample`, levers are held back, the last in `order`
    first, until the change no longer pushes the error past 0 and further away than it is. Levers that are not in
    `order` stay. Raise RuleError for a lever at 0 or below.
    """
    if state.sub_units < 1 or not state.frequency_mhz > 0:
        raise RuleError(f"a unit of {state.sub_units} sub-units at {state.frequency_mhz:g} MHz has nothing to move")
    left, precision_steps, frequency_mhz, sub_units = 1.0, 0, 0.0, 0
    for kind in order:
        if kind is LeverKind.SUB_UNITS:
            bound = most.sub_units if most is not None else None
            sub_units, left = _units(change.sub_units, left, state, limits, bound)
        elif kind is LeverKind.FREQUENCY:
            cap = most.frequency_mhz if most is not None else None
            frequency_mhz, left = _clock(change.frequency_mhz, left, state, limits, cap)
        else:
            bound = most.precision_steps if most is not None else None
            precision_steps, left = _steps(change.precision_steps, left, state, limits, bound, speeds=speeds)
    done = HandedOn(Change(precision_steps, frequency_mhz, sub_units), left)
    return done if sample is None else _guarded(done, _Here(state, limits, speeds), order, sample)


@dataclass(frozen=True, slots=True)
class _Here:
    """Positions of levers, their limits, and their worth."""

    state: UnitState
    limits: Limits
    speeds: Speeds

    @property
    def allowed(self) -> tuple[Precision, ...]:
        return (*self.limits.precisions, self.state.precision)

    def ratio(self, change: Change) -> float:
        return capacity_ratio(self.state, applied(self.state, change, self.allowed), self.speeds)


def _guarded(done: HandedOn, here: _Here, order: Sequence[LeverKind], sample: Sample) -> HandedOn:
    """Return the change without overshooting parts, which are added to the rest."""
    change, left = done.change, done.left
    for kind in reversed(order):
        if change.keeps or not overshoots(change, sample, here.state, here.speeds, here.allowed):
            break
        before = here.ratio(change)
        change = _without(change, kind)
        left *= before / here.ratio(change)
    return HandedOn(change, left)


def _without(change: Change, kind: LeverKind) -> Change:
    return Change(
        0 if kind is LeverKind.PRECISION else change.precision_steps,
        0.0 if kind is LeverKind.FREQUENCY else change.frequency_mhz,
        0 if kind is LeverKind.SUB_UNITS else change.sub_units,
    )


def _wanted(value: float, by: float, handed: float, most: float | None) -> float:
    """Return a lever's target: its own request times the handed-over ratio, at most `most`."""
    asked = max(value + by, _LEAST_RATIO * value)
    wanted = asked * handed
    if most is not None and handed != 1.0:
        reach = max(most, abs(by))
        wanted = min(max(wanted, value - reach), value + reach)
    return wanted


def _units(by: int, handed: float, state: UnitState, limits: Limits, most: int | None) -> tuple[int, float]:
    here = state.sub_units
    if not by and handed == 1.0:
        return 0, 1.0
    wanted = _wanted(here, by, handed, most)
    if limits.sub_units_low <= wanted <= limits.sub_units_high:
        return math.ceil(wanted - _SLACK) - here, 1.0
    reached = limits.sub_units_low if wanted < limits.sub_units_low else limits.sub_units_high
    if (reached - here) * (wanted - here) < 0:  # it is beyond its limits, which is not undone here
        reached = here
    return reached - here, wanted / reached


def _clock(by: float, handed: float, state: UnitState, limits: Limits, most: float | None) -> tuple[float, float]:
    here = state.frequency_mhz
    if not by and handed == 1.0:
        return 0.0, 1.0
    wanted = _wanted(here, by, handed, most)
    if limits.frequency_low_mhz <= wanted <= limits.frequency_high_mhz:
        return _on_grid(wanted, here, limits) - here, 1.0
    reached = limits.frequency_low_mhz if wanted < limits.frequency_low_mhz else limits.frequency_high_mhz
    if (reached - here) * (wanted - here) < 0:
        reached = here
    return reached - here, wanted / reached


def _on_grid(wanted: float, here: float, limits: Limits) -> float:
    """Return the step at or next to a clock, on the side of the current one: it never moves further than requested."""
    step = limits.frequency_step_mhz
    if not step or wanted == here:
        return wanted
    places = (wanted - limits.frequency_low_mhz) / step
    index = math.floor(places + _SLACK) if wanted > here else math.ceil(places - _SLACK)
    on = limits.frequency_low_mhz + index * step
    return here if (on - here) * (wanted - here) < 0 else on


def _steps(
    by: int, handed: float, state: UnitState, limits: Limits, most: int | None, *, speeds: Speeds
) -> tuple[int, float]:
    """Return steps among the allowed precisions, and the rest: the own request first, then the handed-over part."""
    order = sorted({*limits.precisions, state.precision}, key=list(Precision).index)
    here = order.index(state.precision)
    allowed = tuple(order)
    asked = order.index(stepped(state.precision, by, allowed))
    if handed == 1.0:
        missing = abs(by) - abs(asked - here)
        return asked - here, 1.0 if not missing else _nominal(by, missing)
    wanted = handed * speeds[order[asked]] / speeds[state.precision]
    way = -1 if wanted > 1 else 1
    reach = range(len(order)) if most is None else range(here - max(most, abs(by)), here + max(most, abs(by)) + 1)
    ways = [index for index in reach if 0 <= index < len(order) and (index - here) * way > 0]
    best = min([here, *ways], key=lambda index: _off(speeds[order[index]] / speeds[state.precision], wanted))
    return best - here, wanted * speeds[state.precision] / speeds[order[best]]


def _nominal(by: int, missing: int) -> float:
    """Return the nominal worth of steps that do not exist: twice the speed each, half for steps up."""
    return 2.0 ** (missing if by < 0 else -missing)


def _off(ratio: float, wanted: float) -> float:
    return abs(math.log(ratio / wanted))
