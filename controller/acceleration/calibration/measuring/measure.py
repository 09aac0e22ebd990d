"""Measures a machine's calibration by running operators: rates first, then each kind at its sizes, then the fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

from controller.acceleration.calibration.calibration import Calibration
from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.features import features_of
from controller.acceleration.calibration.fitting import fit
from controller.acceleration.calibration.measuring.choosing import Subject, subjects
from controller.acceleration.calibration.roofline import ARITHMETIC, bound_s
from controller.acceleration.calibration.sizes import cached_bytes_of
from controller.acceleration.calibration.values import Figure, Fit, Rates, Run
from controller.cluster.estimates import Basis
from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import work_of
from controller.probing.kernels.loading import Checked, prepare
from controller.probing.values import Implementation, Library
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DeviceKind, NumberFormat

# Peak rates of devices: memory bytes by STREAM's triad on all cores, arithmetic by matrix products, and the bus.
#
# The triad is that of the probe kernels: on a CPU each core runs its own part of it at the same time, as numpy's loops
# release other threads. The bus is measured by copies of pinned memory to the GPU, if there is one.


# Time of a prepared kernel: the shortest execution, after one that is checked instead of timed.
#
# Other activity of the machine only makes executions longer: the shortest one is the operator's own time.


Clock = Callable[[], int]
"""A monotonic clock in nanoseconds."""

_LEAST: Final = 5
_MOST: Final = 1000


def seconds_of(name: str, kernel: Checked, clock: Clock, *, budget_s: float, tolerance: float) -> tuple[float, ...]:
    """Return the seconds of single executions, in order: at least five, then until the budget is spent.

    Raise CalibrationError for a wrong output: the speed of a kernel that computes something else means nothing.
    """
    output = kernel.run(())
    if (error := kernel.accuracy(output)) > tolerance:
        raise CalibrationError(f"{name}: its output is off by {error:.3g}, {tolerance:.3g} is right")
    del output
    found: list[float] = []
    while len(found) < _LEAST or (sum(found) < budget_s and len(found) < _MOST):
        start_ns = clock()
        kernel.run(())
        found.append(max(clock() - start_ns, 1) / NS_PER_S)
    return tuple(found)


def undisturbed_s(seconds: tuple[float, ...]) -> float:
    """Return the shortest time."""
    return min(seconds)


_KERNELS: Final = "controller.probing.kernels"
_TRIAD_BYTES: Final = 24
_FORMATS: Final = ((NumberFormat.FP64, "dgemm", 1e-9), (NumberFormat.FP32, "sgemm", 1e-3))
_COPIES: Final = 7


def cpu_rates(model: str, cores: int, clock: Clock, *, is_quick: bool) -> Rates:
    """Return the rates of this machine's processors, all `cores` together."""
    n = (1 << 20) if is_quick else (1 << 24)
    triad = Implementation(DeviceKind.CPU, Library.NUMPY, f"{_KERNELS}.memory:stream_triad")
    parts = [prepare("stream-triad", triad, {"n": n // cores}, seed=place) for place in range(cores)]
    rates = _together(parts, clock, _TRIAD_BYTES * (n // cores) * cores)
    memory = _figure(rates, f"STREAM's triad by numpy over {_TRIAD_BYTES * n >> 20} MiB on {cores} cores")
    operations = _products(DeviceKind.CPU, "dense:{}", Library.NUMPY, clock, 256 if is_quick else 1024)
    return Rates(DeviceKind.CPU, model, memory_bytes_per_s=memory, operations_per_s=operations)


def gpu_rates(clock: Clock, *, is_quick: bool) -> Rates:
    """Return the rates of torch's GPU and its bus; raise ProbeKernelError without one."""
    import torch  # noqa: PLC0415 - not needed without one

    n = (1 << 20) if is_quick else (1 << 26)
    triad = Implementation(DeviceKind.GPU, Library.TORCH, f"{_KERNELS}.on_torch:stream_triad_cuda")
    kernel = prepare("stream-triad", triad, {"n": n}, seed=0)
    seconds = seconds_of("stream-triad", kernel, clock, budget_s=0.2, tolerance=1e-12)
    memory = _figure([_TRIAD_BYTES * n / one for one in seconds], "STREAM's triad by torch")
    operations = _products(DeviceKind.GPU, "on_torch:{}_cuda", Library.TORCH, clock, 512 if is_quick else 4096)
    bus = _figure(_bus(torch, clock, 1 << (22 if is_quick else 28)), "copies of locked memory to the GPU by torch")
    return Rates(DeviceKind.GPU, torch.cuda.get_device_name(), memory, bus, operations)


def _together(kernels: Sequence[Any], clock: Clock, nbytes: int) -> list[float]:
    """Return the bytes per second of kernels that run at the same time, for each repetition."""
    found = []
    with ThreadPoolExecutor(len(kernels)) as pool:
        runs: Callable[[], list[Any]] = lambda: list(pool.map(lambda one: one.run(()), kernels))  # noqa: E731
        runs()
        for _ in range(_COPIES):
            start_ns = clock()
            runs()
            found.append(nbytes / (max(clock() - start_ns, 1) / NS_PER_S))
    return found


def _products(device: DeviceKind, entry: str, library: Library, clock: Clock, size: int) -> dict[NumberFormat, Figure]:
    found = {}
    for known, name, tolerance in _FORMATS:
        code = Implementation(device, library, f"{_KERNELS}.{entry.format(name)}", threads=True)
        kernel = prepare(name, code, dict.fromkeys(("m", "n", "k"), size), seed=0)
        seconds = seconds_of(name, kernel, clock, budget_s=0.2, tolerance=tolerance)
        found[known] = _figure([2 * size**3 / one for one in seconds], f"{name} of {size} by {library}")
    return found


def _bus(torch: Any, clock: Clock, nbytes: int) -> list[float]:  # noqa: ANN401 - the module
    here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    found = []
    for _ in range(_COPIES + 1):
        torch.cuda.synchronize()
        start_ns = clock()
        there.copy_(here, non_blocking=True)
        torch.cuda.synchronize()
        found.append(nbytes / (max(clock() - start_ns, 1) / NS_PER_S))
    return found[1:]


def _figure(rates: Sequence[float], how: str) -> Figure:
    """Return the maximum, the least disturbed value, with the median as its lower bound."""
    return Figure(max(rates), median(rates), max(rates), Basis.MEASURED, (f"{how}, {len(rates)} times",))


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
