"""Results of probes that cannot be true, whatever the centre's hardware and load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.probe_result import ProbeRun
from controller.cluster.operators import KINDS, Operator, work_of
from controller.cluster.operators.errors import OperatorError
from controller.probing.values import KernelUse, ProbeKernel, ProbeTask
from dataplane.topology.values import NumberFormat

LEAST_REPEATS: Final = 3
"""Clocks count nanoseconds: two runs may agree to the last digit, three do not."""
_MOST_CORES: Final = 1000
_NARROWER: Final = 1.02
"""A run is never shorter than its kernels, apart from clock noise."""
_FLOP_PER_CORE_S: Final[Mapping[NumberFormat, float]] = {NumberFormat.FP64: 256e9, NumberFormat.FP32: 512e9}
_FLOP_PER_CORE_OTHER_S: Final = 16e12


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds of one unit: floating-point operations per second, by format; a missing format is unbounded."""

    flop_per_s: Mapping[NumberFormat, float]


def limits_of(unit: UnitType | None) -> Limits:
    """Return the upper bounds of a unit, whatever its hardware; None for a unit without a description.

    A core with two 512 bit multiply-add units at 8 GHz does 256 Gflop/s in fp64, and none is faster; matrix extensions
    reach a few Tflop/s in narrow formats. A unit that has devices, or does not give its number of cores, does no more
    than 1,000 such cores for each device, or in all.
    """
    cores = float(_MOST_CORES)
    if unit is not None and unit.unit.devices:
        cores *= sum(device.count for device in unit.unit.devices)
    elif unit is not None and unit.unit.cpu_milli:
        cores = max(1.0, unit.unit.cpu_milli / 1000)
    return Limits(
        {
            number_format: cores * _FLOP_PER_CORE_S.get(number_format, _FLOP_PER_CORE_OTHER_S)
            for number_format in NumberFormat
        }
    )


@dataclass(frozen=True, slots=True)
class UseWork:
    """Work of one use of a kernel: repetitions, and floating-point operations of each; None if unknown."""

    repetitions: int
    number_format: NumberFormat | None = None
    flop: float | None = None


def work_by_use(probe: ProbeTask, kernels: Mapping[str, ProbeKernel]) -> dict[str, UseWork]:
    """Return the work of each use of a probe; `kernels` are by identifier, and without one operations are unknown."""
    work = {}
    for use in probe.uses:
        kernel = kernels.get(use.kernel)
        number_format = None if kernel is None else kernel.number_format
        flop = None if kernel is None else _flop(use, kernel)
        work[use.name] = UseWork(use.repetitions, number_format, flop)
    return work


def _flop(use: KernelUse, kernel: ProbeKernel) -> float | None:
    if kernel.operator not in KINDS:
        return None
    try:
        work = work_of(Operator(use.name, kernel.operator, use.sizes, kernel.number_format))
    except OperatorError:
        return None
    return None if work is None or work.unit != "flop" or work.operations is None else float(work.operations)


def impossible(result: ProbeResult, limits: Limits | None, work: Mapping[str, UseWork]) -> str | None:
    """Return why a result cannot be true, None if nothing contradicts it."""
    return next((reason for run in result.status.runs for reason in _impossible(run, limits, work)), None)


def _impossible(run: ProbeRun, limits: Limits | None, work: Mapping[str, UseWork]) -> Iterator[str]:
    times = run.run_times_s
    if any(not (math.isfinite(time_s) and time_s > 0) for time_s in times):
        yield f"a run on {run.units} units takes no time"
    if len(times) >= LEAST_REPEATS and len(set(times)) == 1:
        yield f"{len(times)} repetitions on {run.units} units take the same {times[0]:.9g} s: implausible for a clock"
    for use, seconds in run.kernels_s.items():
        yield from _too_fast(run, use, min(seconds, default=math.inf), limits, work)
    for index, run_time_s in enumerate(times):
        inside_s = sum(
            seconds[index] * work.get(use, UseWork(1)).repetitions
            for use, seconds in run.kernels_s.items()
            if index < len(seconds)
        )
        if inside_s > _NARROWER * run_time_s:
            yield f"repetition {index + 1} on {run.units} units takes {run_time_s:.4g} s, its kernels {inside_s:.4g} s"


def _too_fast(
    run: ProbeRun,
    use: str,
    least_s: float,
    limits: Limits | None,
    work: Mapping[str, UseWork],
) -> Iterator[str]:
    if least_s <= 0:
        yield f"{use} on {run.units} units takes no time"
        return
    done = work.get(use, UseWork(1))
    if done.flop is None or done.number_format is None:
        return
    most = (limits or limits_of(None)).flop_per_s.get(done.number_format, math.inf) * run.units
    if done.flop / least_s > most:
        rate = f"{use}: {done.flop / least_s / 1e9:.4g} Gflop/s in {done.number_format} on {run.units} units"
        yield f"{rate}, whose hardware does {most / 1e9:.4g} at most"
