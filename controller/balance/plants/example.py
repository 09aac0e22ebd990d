"""The worked example: two clusters of 100 vGPUs, one limited by its bus and one by its cores, in exact fractions.

Each vGPU does 100 TOPS at int8 and 1.0 GHz. Cluster I computes 200,000 operations for each byte that crosses its bus,
cluster II 800,000; each bus carries 25 GB/s. Everything else follows from the plant's formulas, the platform's rule and
the handover from an exhausted lever. Power is modelled as sub-units times frequency.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final

from controller.balance.plants.formulas import Rest, bus_tops, compute_tops, rest_at
from controller.balance.plants.loads import constant
from controller.balance.plants.loop import Member, Trajectory, run
from controller.balance.plants.plant import Application, Plant
from controller.balance.plants.power import UNITS_BY_FREQUENCY, units_by_frequency
from controller.balance.rules import ORDER, IntervalRule, Limits, PlatformRule, hand_on
from controller.balance.rules.capacity import SPEEDS, applied
from controller.balance.values import LeverKind, Precision, Sample, UnitState

START: Final = UnitState(Precision.INT8, 1000.0, 100)
_REFERENCE_MHZ: Final = 1000
_UNIT_TOPS: Final = 100
_BUS_GB_PER_S: Final = 25
_MOST_MHZ: Final = 1100.0
"""An overclock of 10 %."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster at some time: its application's computation per byte, and the positions of its levers."""

    name: str
    ops_per_byte: int
    state: UnitState = START

    @property
    def bus_can_tops(self) -> Fraction:
        """The work limit set by its bus."""
        return bus_tops(Fraction(_BUS_GB_PER_S), Fraction(self.ops_per_byte), Fraction(1))

    @property
    def cores_can_tops(self) -> Fraction:
        """The work limit set by its cores."""
        mhz, speed = Fraction(self.state.frequency_mhz), Fraction(SPEEDS[self.state.precision])
        return compute_tops(self.state.sub_units, Fraction(_UNIT_TOPS), mhz, Fraction(_REFERENCE_MHZ), speed)

    def under(self, offered_tops: Fraction) -> Rest[Fraction]:
        """Return its steady state under a load."""
        return rest_at(offered_tops, self.bus_can_tops, self.cores_can_tops)

    @property
    def full(self) -> Rest[Fraction]:
        """Its steady state at full load."""
        return self.under(max(self.bus_can_tops, self.cores_can_tops))

    @property
    def power(self) -> Fraction:
        """Sub-units times frequency in GHz."""
        return units_by_frequency(self.state.sub_units, Fraction(self.state.frequency_mhz) / _REFERENCE_MHZ)


@dataclass(frozen=True, slots=True)
class Stage:
    """The data centre at some time, and how it got there."""

    name: str
    clusters: tuple[Cluster, ...]

    @property
    def work_tops(self) -> Fraction:
        """Work of all clusters at full load."""
        return sum((cluster.full.work_tops for cluster in self.clusters), Fraction(0))

    @property
    def power(self) -> Fraction:
        """Power of all clusters, as sub-units times GHz."""
        return sum((cluster.power for cluster in self.clusters), Fraction(0))

    @property
    def efficiency(self) -> Fraction:
        """TOPS per vGPU at 1 GHz."""
        return self.work_tops / self.power


CLUSTERS: Final = (Cluster("I", 200_000), Cluster("II", 800_000))


def light_tops(cluster: Cluster) -> Fraction:
    """Return the light load of a cluster: half of its work at full load in the initial state."""
    return replace(cluster, state=START).full.work_tops / 2


def stages() -> tuple[Stage, ...]:
    """Return the data centre at the start, after sub-units have moved, and after the rest was handed to other levers.

    Both decisions are by the platform's rule, from the errors at full load. The first uses only sub-units, as many as
    are free; then, for the remaining error, the clock, up to 10 % more, and precision, of which the application allows
    int8 alone.
    """
    start = Stage("at the start", CLUSTERS)
    moved = Stage("sub-units moved", _decided(start.clusters, (LeverKind.SUB_UNITS,)))
    return start, moved, Stage("handed on to the clock", _decided(moved.clusters, ORDER))


def _decided(clusters: tuple[Cluster, ...], order: tuple[LeverKind, ...]) -> tuple[Cluster, ...]:
    """Return clusters after each has asked by the platform's rule; units freed by some are the only ones for others."""
    rule, free = PlatformRule(), 0
    decided: dict[str, Cluster] = {}
    asks = {
        cluster.name: rule.change(float(cluster.full.error), _sample(cluster), cluster.state) for cluster in clusters
    }
    for cluster in sorted(clusters, key=lambda cluster: asks[cluster.name].sub_units):  # units are freed first
        change = asks[cluster.name]
        limits = Limits(
            precisions=(Precision.INT8,), frequency_high_mhz=_MOST_MHZ, sub_units_high=cluster.state.sub_units + free
        )
        done = hand_on(change, cluster.state, limits, order=order).change
        free -= done.sub_units
        decided[cluster.name] = replace(cluster, state=applied(cluster.state, done))
    return tuple(decided[cluster.name] for cluster in clusters)


def _sample(cluster: Cluster) -> Sample:
    rest = cluster.full
    return Sample(0.0, float(rest.bus), float(rest.load), cluster.name)


def gain_between(before: Stage, after: Stage) -> tuple[Fraction, Fraction]:
    """Return the factors by which work, and work per power, have grown."""
    return after.work_tops / before.work_tops, after.efficiency / before.efficiency


def by_table(steps: int = 60) -> tuple[Trajectory, ...]:
    """Return the results of the interval table from the same start, with sub-units only: the other rule, by steps."""
    members = [_member(cluster, steps) for cluster in CLUSTERS]
    return run(members, free=0)


def table_stages() -> tuple[Stage, ...]:
    """Return the data centre at the start, after one step by the interval table, and when no lever moves any more."""
    trajectories = by_table()
    last = max(_steps_to_rest(way) for way in trajectories)
    named = ((0, "at the start"), (1, "after a step"), (last, f"after {last} steps, at rest"))
    return tuple(
        Stage(
            name,
            tuple(
                replace(cluster, state=way.state_at(step)) for cluster, way in zip(CLUSTERS, trajectories, strict=True)
            ),
        )
        for step, name in named
    )


def _steps_to_rest(trajectory: Trajectory) -> int:
    states = [trajectory.state_at(step) for step in range(len(trajectory.time_s))]
    return max((step + 1 for step, (earlier, other) in enumerate(pairwise(states)) if earlier != other), default=0)


def _member(cluster: Cluster, steps: int) -> Member:
    plant = Plant(
        application=Application(name=cluster.name, ops_per_byte=cluster.ops_per_byte, precisions=(Precision.INT8,)),
        bus_gb_per_s=_BUS_GB_PER_S,
        power=UNITS_BY_FREQUENCY,
        queue_gb=0.001,
    )
    full = float(max(cluster.bus_can_tops, cluster.cores_can_tops)) * 2
    alone = (LeverKind.SUB_UNITS,)
    return Member(cluster.name, plant, START, constant(steps, full), IntervalRule(levers=alone), order=alone)
