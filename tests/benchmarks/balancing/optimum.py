"""The most that a cluster could have done, computed offline: a linear program over the whole run.

What it knows: every job and all work of every minute beforehand, without noise. What it may move: the levers that the
controllers have, within the same limits (sub-units of the pool, the minimum shares, the clock's range, the precisions
that a job allows), under the plant's own speeds and power and with the same bounded backlog. What it is spared: delays
of reports and of units on their way, whole numbers of units, steps of the clock, rate limits; levers move at once and
for nothing, within a minute as well. So no controller can do more, and no controller can reach it quite.

Work is maximised first; among all that do as much, it is one that takes least energy. For each device and minute there
is the busy time of sub-units at each clock and precision, idle time at the lowest clock (the minimum share), what waits
at the minute's end and what is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import optimize, sparse

from controller.balance.values import Precision, UnitState
from tests.benchmarks.balancing.clusters import HIGH_MHZ, LEAST_UNITS, LOW_MHZ, UNIT_TOPS, Cluster, Job
from tests.benchmarks.balancing.family import Floats

MINUTE_S: Final = 60.0
CLOCKS_MHZ: Final = tuple(float(mhz) for mhz in np.linspace(LOW_MHZ, HIGH_MHZ, 6))
ENERGY_WEIGHT: Final = 1e-3
"""Weight of a unit's nominal energy for a minute against its nominal work for a minute: only breaks ties."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """Work and energy of the optimum over the whole run."""

    work_tera: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class Mode:
    """A sub-unit at a clock and a precision: its work, its bus load, and its power."""

    speed_tops: float
    bus_tops: float
    busy_w: float
    idle_w: float


def modes_of(job: Job) -> tuple[Mode, ...]:
    """Return a job's modes, those of the lowest clock first."""
    return tuple(_mode(job, clock, precision) for clock in CLOCKS_MHZ for precision in job.limits.precisions)


def _mode(job: Job, frequency_mhz: float, precision: Precision) -> Mode:
    rates = job.plant.rates(UnitState(precision, frequency_mhz, 1))
    return Mode(rates.cores_tops, rates.bus_tops, rates.idle_w + rates.load_w, rates.idle_w)


def optimum(cluster: Cluster) -> Optimum:
    """Return the most work, and the least energy that it takes."""
    program = _Program(cluster)
    return program.solved()


class _Program:
    """Rows and columns; work in sub-units' nominal minutes (UNIT_TOPS), energy in nominal joules of one."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.work_unit = UNIT_TOPS * MINUTE_S
        self.work: list[float] = []
        self.energy: list[float] = []
        self.high: list[float] = []
        self.at_most = _Rows()
        self.equal = _Rows()
        self.pool = [self.at_most.row(cluster.units) for _ in range(cluster.minutes)]
        nominal = cluster.devices[0].jobs[0]
        rates = nominal.plant.rates(UnitState(nominal.precision, nominal.plant.reference_mhz, 1))
        self.energy_unit = (rates.idle_w + rates.load_w) * MINUTE_S
        modes: dict[int, tuple[Mode, ...]] = {}
        for device in cluster.devices:
            before: int | None = None
            for minute, job in enumerate(device.job_of(cluster.minutes)):
                of_job = modes.setdefault(id(job), modes_of(job))
                before = self._minute(minute, job, of_job, float(device.offered_tops[minute]), before)

    def _column(self, work: float = 0.0, energy: float = 0.0, high: float = np.inf) -> int:
        self.work.append(work)
        self.energy.append(energy)
        self.high.append(high)
        return len(self.work) - 1

    def _minute(self, minute: int, job: Job, modes: tuple[Mode, ...], offered_tops: float, before: int | None) -> int:
        """Add a device's minute; return the column of what waits at its end."""
        start = job.plant.rates(job.start)
        room = (start.backlog_tera + start.queue_tera) / self.work_unit
        flow = self.equal.row(offered_tops / UNIT_TOPS)
        bus, least = self.at_most.row(1.0), self.at_most.row(-float(LEAST_UNITS))
        for mode in modes:
            done = mode.speed_tops / UNIT_TOPS
            column = self._column(done, mode.busy_w * MINUTE_S / self.energy_unit)
            self.at_most.put(self.pool[minute], column, 1.0)
            self.at_most.put(least, column, -1.0)
            self.at_most.put(bus, column, mode.speed_tops / mode.bus_tops)
            self.equal.put(flow, column, done)
        idle = self._column(energy=min(mode.idle_w for mode in modes) * MINUTE_S / self.energy_unit)
        self.at_most.put(self.pool[minute], idle, 1.0)
        self.at_most.put(least, idle, -1.0)
        waits, refused = self._column(high=room), self._column()
        self.equal.put(flow, waits, 1.0)
        self.equal.put(flow, refused, 1.0)
        if before is not None:
            self.equal.put(flow, before, -1.0)
        return waits

    def solved(self) -> Optimum:
        work, energy = np.array(self.work), np.array(self.energy)
        solution = optimize.linprog(  # type: ignore[call-overload]  # scipy-stubs know dense matrices only
            ENERGY_WEIGHT * energy - work,
            A_ub=self.at_most.matrix(len(work)),
            b_ub=self.at_most.bounds,
            A_eq=self.equal.matrix(len(work)),
            b_eq=self.equal.bounds,
            bounds=np.column_stack((np.zeros(len(work)), np.array(self.high))),
            method="highs",
        )
        if solution.status != 0:
            raise RuntimeError(f"the optimum was not found: {solution.message}")
        values: Floats = solution.x
        return Optimum(float(work @ values) * self.work_unit, float(energy @ values) * self.energy_unit)


class _Rows:
    """A sparse matrix that grows by rows."""

    def __init__(self) -> None:
        self.bounds: list[float] = []
        self.cells: list[tuple[int, int, float]] = []

    def row(self, bound: float) -> int:
        self.bounds.append(bound)
        return len(self.bounds) - 1

    def put(self, row: int, column: int, value: float) -> None:
        self.cells.append((row, column, value))

    def matrix(self, columns: int) -> sparse.csr_array[np.float64]:
        rows, places, values = zip(*self.cells, strict=True)
        return sparse.csr_array((values, (rows, places)), shape=(len(self.bounds), columns))
