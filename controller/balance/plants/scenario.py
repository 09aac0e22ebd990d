"""Scenarios: units, their loads, rules and controllers, and a pool, as settings; compared with the open loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.control.response import Figures, figures_of
from controller.balance.plants.loads import Floats, noisy
from controller.balance.plants.loop import Keep, Member, Pace, Trajectory, run
from controller.balance.plants.plant import Plant
from controller.balance.rules import IntervalRule, Limits, PlatformRule, Rule
from controller.balance.values import Precision, UnitState
from dataplane.config import Settings, Strict, load_document

MOST_STEPS: Final = 1_000_000
"""Maximum steps of all units together: about 20 s."""
_S_PER_MINUTE: Final = 60.0

Positive = Annotated[float, msgspec.Meta(ge=1e-6, le=1e9)]
NotNegative = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class Load(Settings, frozen=True):
    """Offered work over time."""

    points: tuple[tuple[NotNegative, NotNegative], ...]
    """Seconds from the start, and TOPS from then on."""
    lines: bool = False
    """Interpolate linearly between points, instead of in steps."""
    repeat_s: Positive | None = None
    """Period after which the points repeat."""
    noise: Annotated[float, msgspec.Meta(ge=0, le=10)] = 0.0
    """Standard deviation of each step's load, as a share of it."""

    def __post_init__(self) -> None:
        times = [at_s for at_s, _ in self.points]
        if not times or times[0] != 0:
            raise ValueError("points: the first must be at 0 s")
        if any(not before < after for before, after in pairwise(times)):
            raise ValueError("points: each must be later than the one before it")

    def offered(self, steps: int, dt_s: float, rng: np.random.Generator) -> Floats:
        """Return TOPS for each step."""
        times_s = np.arange(steps) * dt_s
        if self.repeat_s is not None:
            times_s %= self.repeat_s
        at_s, tops = (np.array(column, np.float64) for column in zip(*self.points, strict=True))
        held = tops[np.searchsorted(at_s, times_s, side="right") - 1]
        load = np.interp(times_s, at_s, tops) if self.lines else held
        return noisy(load, self.noise, rng) if self.noise else load


class Start(Strict, frozen=True):
    """Positions of a unit's levers at the start."""

    sub_units: Count
    frequency_mhz: Positive = 1000.0
    precision: Precision = Precision.INT8
    concurrency: Count = 1


class PaceSettings(Strict, frozen=True):
    """Sampling and control pace of a unit."""

    every: Count = 1
    """Steps per sample."""
    wait: Number = 0
    """Steps after a move without another move."""


class UnitSettings(Strict, frozen=True):
    """A unit: its model, its load, and what drives its levers: by default the interval table."""

    name: str
    start: Start
    load: Load
    plant: Plant = Plant()
    limits: Limits | None = None
    """Ranges of its levers; by default sub-units go as far as the pool has any, clock and precision stay."""
    table: IntervalRule | None = None
    platform: PlatformRule | None = None
    control: ControlSettings = ControlSettings()
    pace: PaceSettings = PaceSettings()
    missed: Share = 0.0
    """Share of its samples that are lost."""

    def __post_init__(self) -> None:
        if self.table is not None and self.platform is not None:
            raise ValueError(f"unit {self.name}: set table or platform, not both")
        if self.limits is not None and math.isinf(self.limits.frequency_high_mhz):
            raise ValueError(f"unit {self.name}: limits lack frequency_high_mhz")
        if self.limits is not None and self.limits.power_high_w != 1.0:
            raise ValueError(f"unit {self.name}: limits: the model has no cap of power")
        reach, start = self.reach, self.start
        if start.precision not in self.plant.speeds:
            raise ValueError(f"unit {self.name}: plant.speeds lacks {start.precision}, the initial precision")
        if not reach.frequency_low_mhz <= start.frequency_mhz <= reach.frequency_high_mhz:
            raise ValueError(f"unit {self.name}: it starts at {start.frequency_mhz:g} MHz, outside its limits")
        if not reach.concurrency_low <= start.concurrency <= reach.concurrency_high:
            raise ValueError(f"unit {self.name}: it starts at a concurrency of {start.concurrency}, outside its limits")
        if not reach.sub_units_low <= start.sub_units <= reach.sub_units_high:
            raise ValueError(f"unit {self.name}: it starts with {start.sub_units} sub-units, outside its limits")

    @property
    def reach(self) -> Limits:
        """Ranges of its levers; precisions are those that both limits and application allow."""
        start = self.start
        clock_mhz = start.frequency_mhz
        given = self.limits or Limits(
            precisions=(start.precision,),
            frequency_low_mhz=clock_mhz,
            frequency_high_mhz=clock_mhz,
            concurrency_low=start.concurrency,
            concurrency_high=start.concurrency,
        )
        allowed = tuple(precision for precision in given.precisions if precision in self.plant.application.precisions)
        return msgspec.structs.replace(given, precisions=allowed or (start.precision,))

    @property
    def rule(self) -> Rule:
        """The rule that moves its levers."""
        return self.platform or self.table or IntervalRule()

    def member(self, steps: int, dt_s: float, rng: np.random.Generator) -> Member:
        """Return it as a member of a loop."""
        start, rule = self.start, self.rule
        return Member(
            self.name,
            self.plant,
            UnitState(start.precision, start.frequency_mhz, start.sub_units, start.concurrency),
            self.load.offered(steps, dt_s, rng),
            rule,
            Controller(self.control),
            self.reach,
            order=rule.levers if isinstance(rule, IntervalRule) else Member.order,
            most=rule.table.most if isinstance(rule, IntervalRule) else None,
            pace=Pace(self.pace.every, self.pace.wait),
            missed=self.missed,
        )


class Scenario(Settings, frozen=True):
    """Units that share a pool, for a number of steps of virtual time."""

    units: tuple[UnitSettings, ...]
    steps: Count = 600
    step_s: Positive = 1.0
    free_units: Number | None = 0
    """Sub-units in the pool at the start; null: unlimited."""
    seed: Number = 0
    """Seed of noise and losses."""

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.units]
        if not names:
            raise ValueError("units: at least one needed")
        if len(set(names)) < len(names):
            raise ValueError("units: duplicate name")
        if self.steps * len(names) > MOST_STEPS:
            raise ValueError(f"steps: at most {MOST_STEPS} for all units together")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results of a unit, or of all: mean rates, and figures of its error (None for several)."""

    name: str
    work_tops: float
    watts: float
    work_per_joule: float
    moves_per_minute: float
    refused_share: float
    figures: Figures | None


@dataclass(frozen=True, slots=True)
class Answer:
    """Results of a scenario: each unit's history and outcome, that of all, and that of all in the open loop."""

    trajectories: tuple[Trajectory, ...]
    outcomes: tuple[Outcome, ...]
    together: Outcome
    open_loop: Outcome


def read_scenario(path: Path) -> Scenario:
    """Return a scenario's settings; raise ConfigError with file, line and key."""
    return load_document(path, Scenario).value


def answer(scenario: Scenario) -> Answer:
    """Return the units' results under their rules, and in the open loop, with the same loads and the same noise."""
    rng = np.random.default_rng(scenario.seed)
    members = [unit.member(scenario.steps, scenario.step_s, rng) for unit in scenario.units]
    trajectories = _run(scenario, members)
    kept = _run(scenario, [replace(member, rule=Keep()) for member in members])
    outcomes = tuple(
        _outcome(trajectory.name, [trajectory], [member], scenario)
        for trajectory, member in zip(trajectories, members, strict=True)
    )
    return Answer(
        trajectories,
        outcomes,
        _outcome("all", trajectories, members, scenario),
        _outcome("all, open loop", kept, members, scenario),
    )


def _run(scenario: Scenario, members: Sequence[Member]) -> tuple[Trajectory, ...]:
    rng = np.random.default_rng(scenario.seed)
    return run(members, dt_s=scenario.step_s, free=scenario.free_units, rng=rng)


def _outcome(name: str, trajectories: Sequence[Trajectory], members: Sequence[Member], scenario: Scenario) -> Outcome:
    span_s = scenario.steps * scenario.step_s
    work = sum(float(trajectory.work_tera.sum()) for trajectory in trajectories)
    energy_j = sum(float(trajectory.energy_j.sum()) for trajectory in trajectories)
    offered = sum(float(member.offered_tops.sum()) for member in members) * scenario.step_s
    moves = sum(int(np.count_nonzero(trajectory.moves)) for trajectory in trajectories)
    alone = trajectories[0] if len(trajectories) == 1 and scenario.steps > 1 else None
    return Outcome(
        name,
        work / span_s,
        energy_j / span_s,
        work / energy_j if energy_j else math.nan,
        moves / len(trajectories) * _S_PER_MINUTE / span_s,
        sum(trajectory.refused_tera for trajectory in trajectories) / offered if offered else 0.0,
        None if alone is None else figures_of(alone.time_s.tolist(), alone.error.tolist()),
    )
