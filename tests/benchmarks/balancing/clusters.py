"""Two synthetic clusters of devices that share a pool of sub-units: what runs on them when, and how much work comes.

Both have eight upstream devices with 25 sub-units of 100 TOPS (int8, 1 GHz) each: 200 in the pool, all held at first.

- example: the worked example's two kinds, four devices each, int8. Of kind I the bus carries half of what the cores can
  compute (50 of 100 at full load), of kind II twice as much.
- mixed: each job is of another application; what its bus carries over what cores can compute at its precision is
  between 0.4 and 2.5 (log-uniform), and half of the jobs run at fp16 and allow int8, too.

A recorded duty cycle has no column for the bus, and the family is as recorded ones are: occupancy is what the plant's
model (controller.balance.plants) says that the work takes of the bus. The minimum share is 4 sub-units, clocks go from
600 MHz to 10 % above nominal, work that waits upstream is bounded to a minute of the bus.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from controller.balance.plants import Application, Plant
from controller.balance.rules import Limits
from controller.balance.values import Precision, UnitState
from tests.benchmarks.balancing.family import Floats, Pattern, levels
from tests.benchmarks.balancing.recorded import duty_cycles, levels_of

DEVICES: Final = 8
UNITS: Final = 25
LEAST_UNITS: Final = 4
UNIT_TOPS: Final = 100.0
NOMINAL_MHZ, LOW_MHZ, HIGH_MHZ, STEP_MHZ = 1000.0, 600.0, 1100.0, 25.0
BUS_GB_PER_S: Final = 25.0
BACKLOG_S: Final = 60.0
QUEUE_S: Final = 0.2
SENT: Final = 0.5
"""Share of an application's bytes that take less room at a lower precision, as plants have it."""
NOISE: Final = 0.01
"""Standard deviation of reported bus and load."""
DELAY_S: Final = 5.0
"""Age of a report when it comes."""


class ClusterKind(StrEnum):
    """Cluster of the comparison."""

    EXAMPLE = "example"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Job:
    """Workload of a device from a minute on, and its initial precision."""

    minute: int
    plant: Plant
    precision: Precision
    limits: Limits

    @property
    def start(self) -> UnitState:
        """Lever positions of an unmanaged device."""
        return UnitState(self.precision, NOMINAL_MHZ, UNITS)

    @property
    def limit_tops(self) -> float:
        """Throughput of the device with all levers unmoved: a level of 1."""
        return min(self.plant.bus_can_tops(self.precision), self.plant.cores_can_tops(self.start))


@dataclass(frozen=True, slots=True)
class Device:
    """An upstream device: its jobs in their order, and the work that comes, TOPS for each minute."""

    name: str
    jobs: tuple[Job, ...]
    offered_tops: Floats

    def job_of(self, minutes: int) -> tuple[Job, ...]:
        """Return the job that runs in each minute."""
        starts = np.array([job.minute for job in self.jobs])
        places = np.searchsorted(starts, np.arange(minutes), side="right") - 1
        return tuple(self.jobs[index] for index in places)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices over one pool, for some minutes."""

    kind: ClusterKind
    pattern: Pattern
    seed: int
    minutes: int
    devices: tuple[Device, ...]

    @property
    def units(self) -> int:
        """Number of sub-units in the pool."""
        return UNITS * len(self.devices)


def job(
    minute: int, bus_over_cores: float, precisions: Sequence[Precision], start: Precision, sent: float = SENT
) -> Job:
    """Return a job whose bus carries so much of what the cores compute at its start, on a device's own share."""
    plain = Plant(application=Application(sent_in_precision=sent), bus_gb_per_s=BUS_GB_PER_S, unit_tops=UNIT_TOPS)
    at_start = UnitState(start, NOMINAL_MHZ, UNITS)
    ratio = plain.bus_can_tops(start) / plain.cores_can_tops(at_start)
    application = Application(
        name=f"{bus_over_cores:.2f} {start}",
        ops_per_byte=plain.application.ops_per_byte * bus_over_cores / ratio,
        sent_in_precision=sent,
        precisions=tuple(precisions),
    )
    plant = Plant(
        application=application,
        bus_gb_per_s=BUS_GB_PER_S,
        unit_tops=UNIT_TOPS,
        queue_gb=QUEUE_S * BUS_GB_PER_S,
        backlog_gb=BACKLOG_S * BUS_GB_PER_S,
        delay_s=DELAY_S,
        noise=NOISE,
    )
    limits = Limits(
        precisions=tuple(precisions),
        frequency_low_mhz=LOW_MHZ,
        frequency_high_mhz=HIGH_MHZ,
        frequency_step_mhz=STEP_MHZ,
        sub_units_low=LEAST_UNITS,
        sub_units_high=UNITS * DEVICES,
    )
    return Job(minute, plant, start, limits)


def cluster(kind: ClusterKind, pattern: Pattern, seed: int, minutes: int, sent: float = SENT) -> Cluster:
    """Return a cluster, the same for the same seed; `sent` is the share of bytes whose size the precision changes."""
    devices = []
    for number in range(DEVICES):
        rng = np.random.default_rng((seed, 99, number))
        jobs = example_jobs(number) if kind is ClusterKind.EXAMPLE else mixed_jobs(minutes, rng, sent)
        device = Device(f"{'I' if number % 2 == 0 else 'II'}-{number // 2 + 1}", jobs, np.empty(0))
        limits = np.array([job.limit_tops for job in device.job_of(minutes)])
        devices.append(Device(device.name, jobs, _levels(pattern, minutes, seed, number) * limits))
    return Cluster(kind, pattern, seed, minutes, tuple(devices))


def _levels(pattern: Pattern, minutes: int, seed: int, index: int) -> Floats:
    cycles = duty_cycles() if pattern is Pattern.RECORDED else None
    return levels(pattern, minutes, seed, index) if cycles is None else levels_of(cycles, minutes, seed, index)


def example_jobs(index: int) -> tuple[Job, ...]:
    """Return the one application of a device: I and II by turns."""
    return (job(0, 0.5 if index % 2 == 0 else 2.0, (Precision.INT8,), Precision.INT8),)


def mixed_jobs(minutes: int, rng: np.random.Generator, sent: float = SENT) -> tuple[Job, ...]:
    """Return jobs of a median of 20 minutes, each of another application."""
    jobs: list[Job] = []
    minute = 0
    while minute < minutes:
        ratio = float(np.exp(rng.uniform(np.log(0.4), np.log(2.5))))
        if rng.random() < 0.5:
            jobs.append(job(minute, ratio, (Precision.INT8, Precision.FP16), Precision.FP16, sent))
        else:
            jobs.append(job(minute, ratio, (Precision.INT8,), Precision.INT8, sent))
        minute += int(np.clip(rng.lognormal(np.log(20.0), 0.7), 5, 120))
    return tuple(jobs)
