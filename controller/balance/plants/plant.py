"""A bus that feeds cores through a queue: a unit's work, reports and power, step by step in virtual time.

Work waits upstream (backlog), crosses the bus into the unit's memory (queue), and is computed. Both flow during a step,
so that its length matters only for changes within it. At rest this is `formulas.rest_at`: tests compare the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np

from controller.balance.errors import PlantError
from controller.balance.plants.formulas import Rest, bus_tops, compute_tops, rest_at
from controller.balance.plants.power import Power
from controller.balance.rules.capacity import BITS, SPEEDS
from controller.balance.values import STEPS, Precision, Sample, UnitState
from dataplane.config import Settings, Strict

MOST_LATE: Final = 1000
"""Maximum delay of reports in steps; all reports in transit are kept."""

Positive = Annotated[float, msgspec.Meta(ge=1e-9, le=1e12)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Application(Strict, frozen=True):
    """The application on a unit: its computation per byte that crosses the bus."""

    name: str = "heavy"
    ops_per_byte: Positive = 200_000.0
    """Operations per byte at int8."""
    sent_in_precision: Share = 0.5
    """Share of its bytes whose size depends on the precision; the others are cast on the unit.

    With 1 the precision moves bus and cores alike, and is no lever.
    """
    precisions: tuple[Precision, ...] = STEPS
    """Precisions that it allows."""

    def __post_init__(self) -> None:
        if not self.precisions:
            raise ValueError(f"precisions: the application {self.name} must allow at least one")

    def bytes_ratio(self, precision: Precision) -> float:
        """Return the size of a piece of work relative to int8."""
        return 1.0 + self.sent_in_precision * (BITS[precision] / 8 - 1.0)


LIGHT = Application(name="light", ops_per_byte=50_000.0)
"""Computes little per byte: the bus is its bottleneck."""
HEAVY = Application()
"""Computes much per byte: the cores are its bottleneck."""


@dataclass(frozen=True, slots=True)
class PlantState:
    """A unit between steps: tera-operations waiting upstream and in its memory, and reports in transit."""

    time_s: float = 0.0
    backlog_tera: float = 0.0
    queue_tera: float = 0.0
    refused_tera: float = 0.0
    """Work that arrived while the backlog was full, since the start."""
    reports: tuple[Sample, ...] = ()


class Plant(Settings, frozen=True):
    """A compute unit and the bus that feeds it; the levers' positions are in `UnitState`.

    Reports arrive `delay_s` late, each with noise of `noise` (standard deviation, of bus and load alike).
    """

    application: Application = HEAVY
    bus_gb_per_s: Positive = 25.0
    unit_tops: Positive = 100.0
    """Work of a sub-unit at int8 and the reference clock."""
    reference_mhz: Positive = 1000.0
    speeds: Mapping[Precision, Positive] = msgspec.field(default_factory=lambda: dict(SPEEDS))
    """Speed relative to int8, by precision."""
    concurrency_full: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    """Streams or threads at which a sub-unit's cores are full; with fewer they idle in part."""
    power: Power = Power()
    queue_gb: Positive = 8.0
    """Memory of the unit for waiting data."""
    backlog_gb: Positive = 100.0
    """Data that can wait upstream; anything beyond is refused."""
    delay_s: NotNegative = 0.0
    noise: Share = 0.0

    def __post_init__(self) -> None:
        missing = [str(precision) for precision in self.application.precisions if precision not in self.speeds]
        if missing:
            raise ValueError(f"speeds: none for {', '.join(missing)}, which the application allows")

    def rest(self, unit: UnitState, offered_tops: float) -> Rest[float]:
        """Return the unit's steady state under a constant load."""
        return rest_at(offered_tops, self.bus_can_tops(unit.precision), self.cores_can_tops(unit))

    def bus_can_tops(self, precision: Precision) -> float:
        """Return the work that the bus can feed."""
        ratio = self.application.bytes_ratio(precision)
        return bus_tops(self.bus_gb_per_s, self.application.ops_per_byte, ratio)

    def cores_can_tops(self, unit: UnitState) -> float:
        """Return the work that the cores can do."""
        speed = self.speeds[unit.precision]
        tops = compute_tops(unit.sub_units, self.unit_tops, unit.frequency_mhz, self.reference_mhz, speed)
        return tops * min(unit.concurrency, self.concurrency_full) / self.concurrency_full

    def rates(self, unit: UnitState) -> Rates:
        """Return a unit's capacities for its levers' positions; raise PlantError if they are 0."""
        if unit.sub_units < 1 or not 0.0 < unit.frequency_mhz < math.inf:
            raise PlantError(f"a unit of {unit.sub_units} sub-units at {unit.frequency_mhz:g} MHz computes nothing")
        if unit.precision not in self.speeds:
            raise PlantError(f"speeds: none for {unit.precision}")
        ratio = self.application.bytes_ratio(unit.precision)
        tera_per_gb = self.application.ops_per_byte / (1000.0 * ratio)
        busy_w, static_w = self.power.each_w(unit.frequency_mhz, self.reference_mhz)
        idle_w = self.power.idle_activity * busy_w
        return Rates(
            self.bus_can_tops(unit.precision),
            self.cores_can_tops(unit),
            self.queue_gb * tera_per_gb,
            self.backlog_gb * tera_per_gb,
            unit.sub_units * (idle_w + static_w),
            unit.sub_units * (busy_w - idle_w),
            self.power.bus_w,
        )

    def step(
        self,
        state: PlantState,
        unit: UnitState,
        offered_tops: float,
        dt_s: float,
        rng: np.random.Generator | None = None,
    ) -> tuple[PlantState, Sample, float, float]:
        """Return the state after a step, the report at its end, work done (tera-operations) and joules.

        Before the start the unit was idle, as older reports show. Without `rng` there is no noise. Raise PlantError if
        the step has no length or the unit has nothing to compute with.
        """
        return self.advance(state, self.rates(unit), offered_tops, dt_s, rng)

    def advance(
        self, state: PlantState, rates: Rates, offered_tops: float, dt_s: float, rng: np.random.Generator | None = None
    ) -> tuple[PlantState, Sample, float, float]:
        """Return the result of `step` for levers with known rates, which cost more to compute than the step."""
        if not 0.0 < dt_s < math.inf or not offered_tops >= 0.0:
            raise PlantError(f"invalid step of {dt_s:g} s under a load of {offered_tops:g} TOPS")
        carried, done = rates.bus_tops * dt_s, rates.cores_tops * dt_s
        waiting = state.backlog_tera + offered_tops * dt_s
        sent = min(waiting, carried, max(rates.queue_tera - state.queue_tera, 0.0) + done)
        computed = min(state.queue_tera + sent, done)
        left = waiting - sent
        backlog = min(left, rates.backlog_tera)
        after_s, bus, load = state.time_s + dt_s, sent / carried, computed / done
        now = _measured(after_s, bus, load, self.noise, rng)
        sample, reports = self._report(state, now, dt_s)
        queue = state.queue_tera + sent - computed
        after = PlantState(after_s, backlog, queue, state.refused_tera + (left - backlog), reports)
        return after, sample, computed, rates.watts(bus, load) * dt_s

    def _report(self, state: PlantState, now: Sample, dt_s: float) -> tuple[Sample, tuple[Sample, ...]]:
        """Return the report that has arrived by now, and those in transit."""
        late = round(self.delay_s / dt_s)
        if late > MOST_LATE:
            raise PlantError(f"a report delay of {self.delay_s:g} s is {late} steps, at most {MOST_LATE}")
        if not late:
            return now, ()
        reports = (*state.reports, now)
        if len(reports) <= late:
            return Sample(now.time_s - late * dt_s, 0.0, 0.0), reports
        return reports[-1 - late], reports[-late:]


@dataclass(frozen=True, slots=True)
class Rates:
    """Capacities of a unit for its levers' positions: speeds of bus and cores, room for waiting data, and power."""

    bus_tops: float
    cores_tops: float
    queue_tera: float
    backlog_tera: float
    idle_w: float
    load_w: float
    bus_w: float

    def watts(self, bus: float, load: float) -> float:
        """Return the power at an occupancy and a load."""
        return self.idle_w + self.load_w * load + self.bus_w * bus


def _measured(time_s: float, bus: float, load: float, noise: float, rng: np.random.Generator | None) -> Sample:
    if rng is not None and noise:
        bus += noise * rng.standard_normal()
        load += noise * rng.standard_normal()
    return Sample(time_s, min(max(bus, 0.0), 1.0), min(max(load, 0.0), 1.0))
