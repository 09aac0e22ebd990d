"""A cluster in virtual time: plants, controllers, rules, the allocator and hand-over of units, as production has them.

Each step of 5 s every device's plant advances and reports, and its controller steps. Each round the rules say what is
wanted, `controller.balance.allocation` says who is to have what, what the pool does not give is handed on to clock and
precision, and units that a device is asked for reach another one a round later, when it has promised to stop using
them. Free units draw no power. A job starts at its own precision; clock and units stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from controller.balance.allocation import Claimant, Handover, Limits, allocate, busy_units, hand_over, within_load
from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.control.pid import Blocked
from controller.balance.plants import Keep, PlantState
from controller.balance.rules import ORDER, Rule, hand_on
from controller.balance.rules.capacity import applied
from controller.balance.values import Change, LeverKind, Sample, UnitState
from tests.benchmarks.balancing.clusters import LEAST_UNITS, Cluster, Device

STEP_S: Final = 5.0
MINUTE_S: Final = 60.0
SETTLED_MINUTES: Final = 10
"""From here on changes of levers in steady load are counted: before, devices find their places."""


@dataclass(frozen=True)
class Driver:
    """Controller of the levers of each device in a cluster."""

    name: str
    control: Controller = field(default_factory=lambda: Controller(ControlSettings()))
    rule: Rule = field(default_factory=Keep)
    order: tuple[LeverKind, ...] = ORDER
    most: Change | None = None
    every: int = 1
    """Steps per round."""
    wait: int = 2
    """Steps until a device asks again after its levers moved: reports lag behind."""
    reclaims: bool = True
    """Idle units may be reclaimed for devices with work."""
    frees_to_load: float = 0.0
    """Idle units are freed until those that are left are so busy; 0: only as the rule says."""
    guarded: bool = True
    """Levers stay where a move would overshoot to a larger error: for controllers that use the error."""
    margin: float = 0.1
    """Share by which a unit must be worth more to another device before it is taken away."""

    @property
    def is_open(self) -> bool:
        """Return whether no lever ever moves."""
        return isinstance(self.rule, Keep)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a cluster: tera-operations, joules, and lever changes per minute and device once it had settled."""

    work_tera: float
    energy_j: float
    changes_per_minute: float
    most_changes_per_minute: float
    refused_tera: float
    errors: float
    """Mean of |e| as it was reported."""


class _Seat:
    """A device while the cluster runs."""

    def __init__(self, device: Device, driver: Driver, minutes: int) -> None:
        self.name, self.driver, self.offered_tops = device.name, driver, device.offered_tops
        self.jobs = device.job_of(minutes)
        self.job = self.jobs[0]
        self.unit, self.books = self.job.start, self.job.start.sub_units
        self.rates = self.job.plant.rates(self.unit)
        self.state, self.memory, self.output = PlantState(), driver.control.start(), 0.0
        self.sample = Sample(0.0, 0.0, 0.0)
        self.moved_step, self.changes, self.blocked = -1_000, 0, Blocked.NO
        self.work_tera = self.energy_j = self.errors = 0.0

    def advance(self, minute: int, step: int, rng: np.random.Generator) -> None:
        """Advance a step and let the controller act on the reports; no integral grows while levers wait."""
        job = self.jobs[minute]
        if job is not self.job:
            self.job = job
            self.unit = UnitState(job.precision, self.unit.frequency_mhz, self.unit.sub_units)
            self.rates = job.plant.rates(self.unit)
        offered = float(self.offered_tops[minute])
        self.state, self.sample, work, energy = job.plant.advance(self.state, self.rates, offered, STEP_S, rng)
        blocked = Blocked.BOTH if self.waits(step) else self.blocked
        self.memory, decision = self.driver.control.step(self.memory, self.sample, blocked)
        self.output = decision.u
        self.work_tera += work
        self.energy_j += energy
        self.errors += abs(self.sample.error)

    def waits(self, step: int) -> bool:
        """Return whether its last move does not show yet."""
        return step - self.moved_step <= self.driver.wait

    def asked(self, step: int) -> Change:
        """Return what its rule asks for, as its limits let it."""
        if self.waits(step):
            return Change()
        return self.within(self.driver.rule.change(self.output, self.sample, self.unit))

    def within(self, change: Change, most_units: int | None = None) -> Change:
        """Return a change within limits, including what an exhausted lever passed on; at most this many units."""
        if change.keeps:
            return change
        limits, driver, speeds = self.job.limits, self.driver, self.job.plant.speeds
        if most_units is not None:
            limits = msgspec.structs.replace(limits, sub_units_high=max(most_units, self.unit.sub_units))
        seen = self.sample if driver.guarded else None
        done = hand_on(change, self.unit, limits, order=driver.order, speeds=speeds, most=driver.most, sample=seen)
        return done.change

    def claimant(self, change: Change, step: int) -> Claimant:
        """Return the allocator's input."""
        units, load = self.unit.sub_units, self.sample.load
        busy = busy_units(units, load) if self.driver.reclaims else None
        wanted = units + change.sub_units
        if not self.waits(step):
            wanted = within_load(wanted, units, load, self.driver.frees_to_load)
        return Claimant(self.name, units, max(wanted, LEAST_UNITS), LEAST_UNITS, busy=busy)

    def move(self, change: Change, target: int, usable: int, step: int) -> None:
        """Move clock and precision, with what the pool does not give handed on; take the units that it gives now."""
        before = self.unit
        done = change if target >= before.sub_units + change.sub_units else self.within(change, target)
        if not change.keeps:
            self.blocked = _blocked(self.output, done)
        others = Change(done.precision_steps, done.frequency_mhz)
        after = applied(before, others, (*self.job.limits.precisions, before.precision))
        self.unit = UnitState(after.precision, after.frequency_mhz, usable)
        if self.unit == before:
            return
        self.rates, self.moved_step = self.job.plant.rates(self.unit), step
        if step * STEP_S >= SETTLED_MINUTES * MINUTE_S:
            self.changes += (
                (self.unit.precision is not before.precision)
                + (self.unit.frequency_mhz != before.frequency_mhz)
                + (usable != before.sub_units)
            )


def _blocked(output: float, done: Change) -> Blocked:
    """Return the outputs that no lever follows, after a lever did only part of its move."""
    if not done.keeps:
        return Blocked.NO
    return Blocked.UP if output > 0 else Blocked.DOWN


def run(cluster: Cluster, driver: Driver) -> Outcome:
    """Return what a cluster does with a driver; noise is drawn by the cluster's seed, the same for each driver."""
    rng = np.random.default_rng((cluster.seed, 7))
    seats = {device.name: _Seat(device, driver, cluster.minutes) for device in cluster.devices}
    steps = math.floor(cluster.minutes * MINUTE_S / STEP_S)
    for step in range(steps):
        minute = int(step * STEP_S // MINUTE_S)
        for seat in seats.values():
            seat.advance(minute, step, rng)
        if not driver.is_open and (step + 1) % driver.every == 0:
            _round(cluster, driver, seats, step)
    return _outcome(cluster, seats, steps)


def _round(cluster: Cluster, driver: Driver, seats: Mapping[str, _Seat], step: int) -> None:
    """Ask, share out and hand over."""
    changes = {name: seat.asked(step) for name, seat in seats.items()}
    claimants = [seat.claimant(changes[name], step) for name, seat in seats.items()]
    if (
        all(change.keeps for change in changes.values())
        and all(seat.books == seat.unit.sub_units for seat in seats.values())
        and all(claimant.wanted == claimant.units for claimant in claimants)
    ):
        return
    shares = allocate(cluster.units, claimants, Limits(margin=driver.margin))
    now = {name: Handover(name, seat.books, seat.unit.sub_units) for name, seat in seats.items()}
    for holding in hand_over(cluster.units, now, shares):
        seat = seats[holding.holder]
        seat.books = holding.units
        seat.move(changes[holding.holder], shares.units[holding.holder], holding.units - holding.leaving, step)


def _outcome(cluster: Cluster, seats: Mapping[str, _Seat], steps: int) -> Outcome:
    counted = max(cluster.minutes - SETTLED_MINUTES, 1)
    changes = [seat.changes / counted for seat in seats.values()]
    return Outcome(
        work_tera=sum(seat.work_tera for seat in seats.values()),
        energy_j=sum(seat.energy_j for seat in seats.values()),
        changes_per_minute=sum(changes) / len(changes),
        most_changes_per_minute=max(changes),
        refused_tera=sum(seat.state.refused_tera for seat in seats.values()),
        errors=sum(seat.errors for seat in seats.values()) / steps / len(seats),
    )
