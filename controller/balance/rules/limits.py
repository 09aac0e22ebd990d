"""Limits of levers, and handover from an exhausted lever to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import msgspec

from controller.balance.errors import RuleError
from controller.balance.rules.capacity import SPEEDS, Speeds, applied, capacity_ratio, is_stopped, overshoots, stepped
from controller.balance.values import STEPS, Change, LeverKind, Precision, Sample, UnitState
from dataplane.config import Strict

ORDER: Final = (
    *(LeverKind.SUB_UNITS, LeverKind.CONCURRENCY),
    *(LeverKind.FREQUENCY, LeverKind.POWER),
    LeverKind.PRECISION,
)
"""Order of handover: sub-units while there are any, then the use of each, the clock and the power; accuracy is last."""
_LEAST_RATIO: Final = 0.1
"""Minimum ratio of a change: one that would reduce a lever further asks for this ratio of its position."""
_SLACK: Final = 1e-9

Clock = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Limits(Strict, frozen=True):
    """Range of each lever of a unit; a lever that may not be moved has both ends at its position."""

    precisions: tuple[Precision, ...] = STEPS
    """Precisions that the application allows."""
    frequency_low_mhz: Clock = 1.0
    frequency_high_mhz: Annotated[float, msgspec.Meta(gt=0)] = math.inf
    frequency_step_mhz: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Clocks are at whole multiples of this above the low end; 0: anywhere."""
    sub_units_low: Count = 1
    """The minimum share, which is never given away."""
    sub_units_high: Count = 1_000_000
    concurrency_low: Count = 1
    concurrency_high: Count = 1
    """Units have this lever if their limits say so."""
    power_low_w: Clock = 1.0
    power_high_w: Clock = 1.0

    def __post_init__(self) -> None:
        if not self.precisions:
            raise ValueError("precisions: at least one needed")
        if not self.frequency_low_mhz <= self.frequency_high_mhz:
            raise ValueError("frequency_low_mhz is above frequency_high_mhz")
        if not self.sub_units_low <= self.sub_units_high:
            raise ValueError("sub_units_low is above sub_units_high")
        if not self.concurrency_low <= self.concurrency_high:
            raise ValueError("concurrency_low is above concurrency_high")
        if not self.power_low_w <= self.power_high_w:
            raise ValueError("power_low_w is above power_high_w")


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
    if is_stopped(state):
        at = f"{state.frequency_mhz:g} MHz"
        if state.concurrency < 1 or not state.power_w > 0:
            at += f", a concurrency of {state.concurrency} and {state.power_w:g} W"
        raise RuleError(f"a unit of {state.sub_units} sub-units at {at} has nothing to move")
    here, left, done_part = _Here(state, limits, speeds), 1.0, Change()
    for kind in order:
        bound = None if most is None else part_of(most, kind)
        part, left = _part(kind, part_of(change, kind), left, here, bound)
        done_part = with_part(done_part, kind, part)
    done = HandedOn(done_part, left)
    return done if sample is None else _guarded(done, here, order, sample)


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
        change = with_part(change, kind, 0)
        left *= before / here.ratio(change)
    return HandedOn(change, left)


def part_of(change: Change, kind: LeverKind) -> float:
    """Return a lever's part of a change."""
    match kind:
        case LeverKind.PRECISION:
            return change.precision_steps
        case LeverKind.FREQUENCY:
            return change.frequency_mhz
        case LeverKind.SUB_UNITS:
            return change.sub_units
        case LeverKind.CONCURRENCY:
            return change.concurrency
        case LeverKind.POWER:
            return change.power_w


def with_part(change: Change, kind: LeverKind, part: float) -> Change:
    """Return a change with another part for a lever, in whole steps where it has such."""
    match kind:
        case LeverKind.PRECISION:
            return replace(change, precision_steps=round(part))
        case LeverKind.FREQUENCY:
            return replace(change, frequency_mhz=part)
        case LeverKind.SUB_UNITS:
            return replace(change, sub_units=round(part))
        case LeverKind.CONCURRENCY:
            return replace(change, concurrency=round(part))
        case LeverKind.POWER:
            return replace(change, power_w=part)


def _part(kind: LeverKind, by: float, handed: float, place: _Here, bound: float | None) -> tuple[float, float]:
    """Return a lever's part of what it is asked and handed, and the rest."""
    state, limits = place.state, place.limits
    match kind:
        case LeverKind.SUB_UNITS:
            ends = limits.sub_units_low, limits.sub_units_high
            return _units(round(by), handed, state.sub_units, ends, bound)
        case LeverKind.CONCURRENCY:
            ends = limits.concurrency_low, limits.concurrency_high
            if ends[0] == ends[1]:  # most units have no such lever: no bound may cut what is handed on
                return 0, handed * max(state.concurrency + by, 1) / state.concurrency
            return _units(round(by), handed, state.concurrency, ends, bound)
        case LeverKind.FREQUENCY:
            range_mhz = limits.frequency_low_mhz, limits.frequency_high_mhz
            return _level(by, handed, state.frequency_mhz, range_mhz, bound, step=limits.frequency_step_mhz)
        case LeverKind.POWER:
            range_w = limits.power_low_w, limits.power_high_w
            if range_w[0] == range_w[1]:
                return 0.0, handed * max(state.power_w + by, _LEAST_RATIO * state.power_w) / state.power_w
            return _level(by, handed, state.power_w, range_w, bound)
        case LeverKind.PRECISION:
            return _steps(
                round(by), handed, state, limits, None if bound is None else round(bound), speeds=place.speeds
            )


def _wanted(value: float, by: float, handed: float, most: float | None) -> float:
    """Return a lever's target: its own request times the handed-over ratio, at most `most`."""
    asked = max(value + by, _LEAST_RATIO * value)
    wanted = asked * handed
    if most is not None and handed != 1.0:
        reach = max(most, abs(by))
        wanted = min(max(wanted, value - reach), value + reach)
    return wanted


def _units(by: int, handed: float, here: int, ends: tuple[int, int], most: float | None) -> tuple[int, float]:
    low, high = ends
    if not by and handed == 1.0:
        return 0, 1.0
    wanted = _wanted(here, by, handed, most)
    if low <= wanted <= high:
        return math.ceil(wanted - _SLACK) - here, 1.0
    reached = low if wanted < low else high
    if (reached - here) * (wanted - here) < 0:  # it is beyond its limits, which is not undone here
        reached = here
    return reached - here, wanted / reached


def _level(
    by: float, handed: float, here: float, ends: tuple[float, float], most: float | None, *, step: float = 0.0
) -> tuple[float, float]:
    """Return the change of a clock, or of a cap of power."""
    low, high = ends
    if not by and handed == 1.0:
        return 0.0, 1.0
    wanted = _wanted(here, by, handed, most)
    if low <= wanted <= high:
        return _on_grid(wanted, here, low, step) - here, 1.0
    reached = low if wanted < low else high
    if (reached - here) * (wanted - here) < 0:
        reached = here
    return reached - here, wanted / reached


def _on_grid(wanted: float, here: float, low: float, step: float) -> float:
    """Return the step at or next to a clock, on the side of the current one: it never moves further than requested."""
    if not step or wanted == here:
        return wanted
    places = (wanted - low) / step
    index = math.floor(places + _SLACK) if wanted > here else math.ceil(places - _SLACK)
    on = low + index * step
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
