"""The closed loop in virtual time: units, their controllers and rules, and the pool of their sub-units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from controller.balance.control.controller import Controller, ControllerState, ControlSettings
from controller.balance.control.pid import Blocked
from controller.balance.errors import PlantError
from controller.balance.plants.plant import Plant, PlantState, Rates
from controller.balance.rules import ORDER, Limits, Rule, hand_on
from controller.balance.rules.capacity import applied
from controller.balance.rules.history import Record
from controller.balance.values import Change, LeverKind, Precision, Sample, UnitState

Floats = npt.NDArray[np.float64]
PRECISIONS: Final = tuple(Precision)
_KEEP: Final = Change()


class Keep:
    """The open loop: no lever ever moves."""

    def change(self, u: float, sample: Sample, state: UnitState) -> Change:  # noqa: ARG002 - a rule's arguments
        """Return nothing to do."""
        return _KEEP


@dataclass(frozen=True, slots=True)
class Pace:
    """Sampling and control pace of a unit: every `every` steps, and not within `wait` steps after its last move.

    A sample is the mean of the interval that it ends. While a unit waits, no integral grows. `wait` should be at least
    the delay of reports if a rule asks for everything missing at once: earlier samples show the unit before the move.
    """

    every: int = 1
    wait: int = 0

    def __post_init__(self) -> None:
        if self.every < 1 or self.wait < 0:
            raise PlantError(f"pace: every {self.every} steps (at least 1), wait {self.wait} (at least 0)")


@dataclass(frozen=True)
class Member:
    """A unit in the loop: its plant and load, the positions and limits of its levers, and what drives them."""

    name: str
    plant: Plant
    start: UnitState
    offered_tops: Floats
    rule: Rule = field(default_factory=Keep)
    control: Controller = field(default_factory=lambda: Controller(ControlSettings()))
    limits: Limits = field(default_factory=Limits)
    order: tuple[LeverKind, ...] = ORDER
    most: Change | None = None
    pace: Pace = Pace()
    guarded: bool = True
    """Handed-over moves never push the error past 0 and further away than it is."""
    missed: float = 0.0
    """Share of its samples that are lost."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A unit's history, one array per figure, one element per step: as reported, and the work and power of the step."""

    name: str
    time_s: Floats
    bus: Floats
    load: Floats
    output: Floats
    precision: npt.NDArray[np.int8]
    """Indices into `PRECISIONS`."""
    frequency_mhz: Floats
    sub_units: npt.NDArray[np.int64]
    concurrency: npt.NDArray[np.int64]
    work_tera: Floats
    energy_j: Floats
    refused_tera: float

    @property
    def error(self) -> Floats:
        """Return e = P_p - P_d as seen by the controller."""
        return self.bus - self.load

    @property
    def moves(self) -> npt.NDArray[np.bool_]:
        """Return the steps in which a lever was elsewhere than in the step before."""
        moved: npt.NDArray[np.bool_] = np.zeros(len(self.time_s), np.bool_)
        for lever in (self.precision, self.frequency_mhz, self.sub_units, self.concurrency):
            moved[1:] |= lever[1:] != lever[:-1]
        return moved

    def records(self) -> tuple[Record, ...]:
        """Return it as a history from which a rule can be learned."""
        reports = zip(self.time_s, self.bus, self.load, strict=True)
        samples = (Sample(float(at_s), float(bus), float(load), self.name) for at_s, bus, load in reports)
        return tuple(Record(sample, self.state_at(step)) for step, sample in enumerate(samples))

    def state_at(self, step: int) -> UnitState:
        """Return the positions of the levers in a step."""
        return UnitState(
            PRECISIONS[int(self.precision[step])],
            float(self.frequency_mhz[step]),
            int(self.sub_units[step]),
            int(self.concurrency[step]),
        )


Share = Callable[[Sequence[int], int], Sequence[int]]
"""Assigns the free sub-units by the requests."""


def in_turn(asks: Sequence[int], free: int) -> list[int]:
    """Give each what it asks for, in order, while any are left."""
    given: list[int] = []
    for ask in asks:
        given.append(min(ask, free))
        free -= given[-1]
    return given


class _Running:
    """A member while the loop runs."""

    def __init__(self, member: Member) -> None:
        self.member, self.unit, self.state = member, member.start, PlantState()
        self.rates: Rates = member.plant.rates(member.start)
        self.memory: ControllerState = member.control.start()
        self.sample = Sample(0.0, 0.0, 0.0)
        self.bus_sum = self.load_sum = self.output = 0.0
        self.moved, self.sampled, self.blocked = -member.pace.wait - 1, False, Blocked.NO
        self.rows: list[tuple[float, ...]] = []

    def advance(self, step: int, dt_s: float, rng: np.random.Generator) -> None:
        """Advance one step; at the end of an interval its sample arrives, if at all, and the controller acts."""
        member, unit = self.member, self.unit
        offered_tops = float(member.offered_tops[step])
        self.state, report, work, energy_j = member.plant.advance(self.state, self.rates, offered_tops, dt_s, rng)
        self.bus_sum += report.bus
        self.load_sum += report.load
        self.sampled = False
        if not (step + 1) % member.pace.every:
            self._sample(report.time_s, rng, is_waiting=step - self.moved <= member.pace.wait)
        seen = self.sample
        levers = PRECISIONS.index(unit.precision), unit.frequency_mhz, unit.sub_units, unit.concurrency
        self.rows.append((self.state.time_s, seen.bus, seen.load, self.output, *levers, work, energy_j))

    def _sample(self, time_s: float, rng: np.random.Generator, *, is_waiting: bool) -> None:
        """Take the mean of an interval, and let the controller act on it unless it is lost."""
        member, every = self.member, self.member.pace.every
        bus, load = min(self.bus_sum / every, 1.0), min(self.load_sum / every, 1.0)
        self.bus_sum = self.load_sum = 0.0
        if member.missed and rng.random() < member.missed:
            return
        self.sample = Sample(time_s, bus, load, member.name)
        blocked = Blocked.BOTH if is_waiting else self.blocked
        self.memory, output = member.control.step(self.memory, self.sample, blocked)
        self.output, self.sampled = output.u, not is_waiting

    def asked(self) -> Change:
        """Return the rule's request after a step."""
        return self.member.rule.change(self.output, self.sample, self.unit) if self.sampled else _KEEP

    def move(self, change: Change, granted: int, step: int) -> None:
        """Move the levers within their limits, with at most this many additional sub-units."""
        member, unit = self.member, self.unit
        high = min(member.limits.sub_units_high, unit.sub_units + granted)
        limits = member.limits if high == member.limits.sub_units_high else _up_to(member.limits, high)
        speeds = member.plant.speeds
        seen = self.sample if member.guarded else None
        order, most = member.order, member.most
        done = hand_on(change, unit, limits, order=order, speeds=speeds, most=most, sample=seen).change
        self.blocked = _blocked(self.output, done)
        if not done.keeps:
            self.unit = applied(unit, done, (*member.limits.precisions, unit.precision))
            self.rates, self.moved = member.plant.rates(self.unit), step

    def trajectory(self) -> Trajectory:
        columns = np.array(self.rows, np.float64).reshape(-1, 10).T
        time_s, bus, load, output, precision, frequency_mhz, sub_units, concurrency, work, energy_j = columns
        return Trajectory(
            self.member.name,
            time_s,
            bus,
            load,
            output,
            precision.astype(np.int8),
            frequency_mhz,
            sub_units.astype(np.int64),
            concurrency.astype(np.int64),
            work,
            energy_j,
            self.state.refused_tera,
        )


def _blocked(output: float, done: Change) -> Blocked:
    """Return the outputs that no lever can follow, after one that was only partly carried out."""
    if not done.keeps:
        return Blocked.NO
    return Blocked.UP if output > 0 else Blocked.DOWN


def _up_to(limits: Limits, high: int) -> Limits:
    return replace(limits, sub_units_low=min(limits.sub_units_low, high), sub_units_high=high)


def run(
    members: Sequence[Member],
    *,
    dt_s: float = 1.0,
    free: int | None = None,
    share: Share = in_turn,
    rng: np.random.Generator | None = None,
) -> tuple[Trajectory, ...]:
    """Return the units' histories under control, for as many steps as the shortest load has.

    `free` sub-units are in the pool at the start, None: the pool is unlimited. Units freed in a step are available to
    others in the same step. Raise PlantError for invalid units, loads or states.
    """
    if not members:
        raise PlantError("a loop needs at least one unit")
    generator = rng if rng is not None else np.random.default_rng(0)
    running = [_Running(member) for member in members]
    for step in range(min(len(member.offered_tops) for member in members)):
        for runner in running:
            runner.advance(step, dt_s, generator)
        changes = [runner.asked() for runner in running]
        if all(change.keeps for change in changes):
            continue
        free = _exchange(running, changes, free, share, step)
    return tuple(runner.trajectory() for runner in running)


def _exchange(
    running: Sequence[_Running], changes: Sequence[Change], free: int | None, share: Share, step: int
) -> int | None:
    """Move all levers, first those that free sub-units; return the number in the pool afterwards."""
    before = [runner.unit.sub_units for runner in running]
    for runner, change in zip(running, changes, strict=True):
        if change.sub_units <= 0 and not change.keeps:
            runner.move(change, 0 if free is not None else runner.member.limits.sub_units_high, step)
    if free is not None:
        free += sum(was - runner.unit.sub_units for was, runner in zip(before, running, strict=True))
    asks = [max(change.sub_units, 0) for change in changes]
    granted = asks if free is None else share(asks, free)
    for runner, change, ask, grant in zip(running, changes, asks, granted, strict=True):
        if ask:
            was = runner.unit.sub_units
            runner.move(change, grant, step)
            free = free - (runner.unit.sub_units - was) if free is not None else None
    return free
