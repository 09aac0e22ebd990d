"""Measures a machine's calibration by running operators: rates first, then each kind at its sizes, then the fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from controller.acceleration.calibration.calibration import Calibration
from controller.acceleration.calibration.features import features_of
from controller.acceleration.calibration.fitting import fit
from controller.acceleration.calibration.measuring.choosing import Subject, subjects
from controller.acceleration.calibration.measuring.rates import Clock, cpu_rates, gpu_rates, seconds_of, undisturbed_s
from controller.acceleration.calibration.roofline import ARITHMETIC, bound_s
from controller.acceleration.calibration.sizes import cached_bytes_of
from controller.acceleration.calibration.values import Figure, Fit, Rates, Run
from controller.cluster.estimates import Basis
from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import work_of
from controller.probing.kernels.loading import prepare
from controller.probing.values import Library
from dataplane.topology.values import DeviceKind

_BUDGET_S: Final = 0.06
_QUICK_BUDGET_S: Final = 0.005
_ROWS: Final = frozenset({"filter", "project", "join", "aggregate", "sort", "top-n", "table-scan"})
"""Kinds that chase bytes through hashes and orders: they say nothing about the roofline of numeric kinds."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of a subject and their operators."""

    subject: Subject
    operators: tuple[Operator, ...]
    runs: tuple[Run, ...]


def measure(
    machine: str,
    cores: int,
    devices: frozenset[DeviceKind],
    libraries: frozenset[Library],
    clock: Clock,
    *,
    is_quick: bool = False,
    source: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Return a calibration of this machine; `say` is called with the progress.

    Raise CalibrationError for wrong outputs, ProbeKernelError for a missing library, memory or GPU.
    """
    rates: list[Rates] = []
    for device in sorted(devices):
        say(f"rates of the {device}")
        found = gpu_rates(clock, is_quick=is_quick) if device is DeviceKind.GPU else None
        rates.append(found or cpu_rates(machine, cores, clock, is_quick=is_quick))
    measured = []
    for subject in subjects(devices, libraries, is_quick=is_quick):
        say(subject.name)
        measured.append(runs_of(subject, clock, is_quick=is_quick))
    return calibrated(machine, cores, rates, measured, source=source, is_corrected=not is_quick)


def calibrated(
    machine: str, cores: int, rates: Sequence[Rates], measured: Sequence[Measured], *, source: str, is_corrected: bool
) -> Calibration:
    """Return the calibration from rates and runs; `is_corrected`: sizes beyond caches are fitted separately."""
    known = tuple(replace(one, attained=_attained(measured, one)) for one in rates)
    cached = {one.device: _cached_bytes(measured, one.device) if is_corrected else None for one in rates}
    fits = tuple(fit_of(one, cached[one.subject.implementation.device]) for one in measured)
    return _with_parallelism(Calibration(machine, cores, known, fits, source))


def _cached_bytes(measured: Sequence[Measured], device: DeviceKind) -> float | None:
    """Return the size of a device's caches, from all kinds measured on it."""
    return cached_bytes_of(
        [(one.subject.kind, one.runs) for one in measured if one.subject.implementation.device is device]
    )


def _with_parallelism(calibration: Calibration) -> Calibration:
    """Return a calibration with M of a GPU: the median over kinds measured on both."""
    rates = []
    for one in calibration.rates:
        factors = [factor for _, factor in calibration.speed_ups(one.device)]
        if one.device is not DeviceKind.CPU and factors:
            why = f"median of {len(factors)} kinds that were measured on both"
            found = Figure(median(factors), min(factors), max(factors), Basis.MEASURED, (why,))
            rates.append(replace(one, parallelism=found))
        else:
            rates.append(one)
    return replace(calibration, rates=tuple(rates))


def runs_of(subject: Subject, clock: Clock, *, is_quick: bool = False) -> Measured:
    """Return a subject's runs, the shortest execution for each of its sizes."""
    operators, runs, budget_s = [], [], _QUICK_BUDGET_S if is_quick else _BUDGET_S
    for sizes in subject.sizes:
        operator = Operator.of(subject.kind, subject.kind, sizes, subject.number_format)
        kernel = prepare(subject.name, subject.implementation, sizes, seed=1)
        try:
            seconds = seconds_of(subject.name, kernel, clock, budget_s=budget_s, tolerance=subject.tolerance)
        finally:
            kernel.close()
        operators.append(operator)
        runs.append(Run(features_of(operator), undisturbed_s(seconds)))
    return Measured(subject, tuple(operators), tuple(runs))


def fit_of(measured: Measured, cached_bytes: float | None = None) -> Fit:
    """Return the fit of a subject's runs, corrected for sizes beyond caches."""
    subject = measured.subject
    return fit(
        subject.kind,
        measured.runs,
        device=subject.implementation.device,
        library=subject.implementation.library.value,
        number_format=subject.number_format,
        cached_bytes=cached_bytes,
    )


def _attained(measured: Sequence[Measured], rates: Rates) -> Figure | None:
    """Return the part of the roofline that numeric kinds reach at their largest size."""
    found = dict(_parts(measured, rates))
    if not found:
        return None
    least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    how = f"{len(found)} kinds at their largest sizes, from {least} to {most}"
    return Figure(median(found.values()), found[least], found[most], Basis.MEASURED, (how,))


def _parts(measured: Sequence[Measured], rates: Rates) -> Iterable[tuple[str, float]]:
    for one in measured:
        if one.subject.implementation.device is not rates.device or one.subject.kind in _ROWS:
            continue
        operator, run = one.operators[-1], one.runs[-1]
        work = work_of(operator)
        if work is None or (work.operations and work.unit not in ARITHMETIC):
            continue
        if (bound := bound_s(work, operator, rates)) is not None:
            yield one.subject.name, bound[0] / run.seconds
