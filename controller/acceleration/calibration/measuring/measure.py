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
        raise CalibrationError(f"{name}: its output is off by {error:.3g}, at most {tolerance:.3g} is allowed")
    del output
    seconds: list[float] = []
    while len(seconds) < _LEAST or (sum(seconds) < budget_s and len(seconds) < _MOST):
        start_ns = clock()
        kernel.run(())
        seconds.append(max(clock() - start_ns, 1) / NS_PER_S)
    return tuple(seconds)


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
    parts = [prepare("stream-triad", triad, {"n": n // cores}, seed=core) for core in range(cores)]
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
    memory = _figure([_TRIAD_BYTES * n / run_s for run_s in seconds], "STREAM's triad by torch")
    operations = _products(DeviceKind.GPU, "on_torch:{}_cuda", Library.TORCH, clock, 512 if is_quick else 4096)
    bus = _figure(_bus(torch, clock, 1 << (22 if is_quick else 28)), "copies of pinned memory to the GPU by torch")
    return Rates(DeviceKind.GPU, torch.cuda.get_device_name(), memory, bus, operations)


def _together(kernels: Sequence[Any], clock: Clock, nbytes: int) -> list[float]:
    """Return the bytes per second of kernels that run at the same time, for each repetition."""
    rates = []
    with ThreadPoolExecutor(len(kernels)) as pool:
        runs: Callable[[], list[Any]] = lambda: list(pool.map(lambda kernel: kernel.run(()), kernels))  # noqa: E731
        runs()
        for _ in range(_COPIES):
            start_ns = clock()
            runs()
            rates.append(nbytes / (max(clock() - start_ns, 1) / NS_PER_S))
    return rates


def _products(device: DeviceKind, entry: str, library: Library, clock: Clock, size: int) -> dict[NumberFormat, Figure]:
    rates = {}
    for number_format, name, tolerance in _FORMATS:
        code = Implementation(device, library, f"{_KERNELS}.{entry.format(name)}", threads=True)
        kernel = prepare(name, code, dict.fromkeys(("m", "n", "k"), size), seed=0)
        seconds = seconds_of(name, kernel, clock, budget_s=0.2, tolerance=tolerance)
        rates[number_format] = _figure([2 * size**3 / run_s for run_s in seconds], f"{name} of {size} by {library}")
    return rates


def _bus(torch: Any, clock: Clock, nbytes: int) -> list[float]:  # noqa: ANN401 - the module
    here = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    rates = []
    for _ in range(_COPIES + 1):
        torch.cuda.synchronize()
        start_ns = clock()
        there.copy_(here, non_blocking=True)
        torch.cuda.synchronize()
        rates.append(nbytes / (max(clock() - start_ns, 1) / NS_PER_S))
    return rates[1:]


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
        of_gpu = gpu_rates(clock, is_quick=is_quick) if device is DeviceKind.GPU else None
        rates.append(of_gpu or cpu_rates(machine, cores, clock, is_quick=is_quick))
    measured = []
    for subject in subjects(devices, libraries, is_quick=is_quick):
        say(subject.name)
        measured.append(runs_of(subject, clock, is_quick=is_quick))
    return calibrated(machine, cores, rates, measured, source=source, is_corrected=not is_quick)


def calibrated(
    machine: str, cores: int, rates: Sequence[Rates], measured: Sequence[Measured], *, source: str, is_corrected: bool
) -> Calibration:
    """Return the calibration from rates and runs; `is_corrected`: sizes beyond caches are fitted separately."""
    attained = tuple(replace(device_rates, attained=_attained(measured, device_rates)) for device_rates in rates)
    cached = {
        device_rates.device: _cached_bytes(measured, device_rates.device) if is_corrected else None
        for device_rates in rates
    }
    fits = tuple(fit_of(subject_runs, cached[subject_runs.subject.implementation.device]) for subject_runs in measured)
    return _with_parallelism(Calibration(machine, cores, attained, fits, source))


def _cached_bytes(measured: Sequence[Measured], device: DeviceKind) -> float | None:
    """Return the size of a device's caches, from all kinds measured on it."""
    return cached_bytes_of(
        [
            (subject_runs.subject.kind, subject_runs.runs)
            for subject_runs in measured
            if subject_runs.subject.implementation.device is device
        ]
    )


def _with_parallelism(calibration: Calibration) -> Calibration:
    """Return a calibration with M of a GPU: the median over kinds measured on both."""
    rates = []
    for device_rates in calibration.rates:
        factors = [factor for _, factor in calibration.speed_ups(device_rates.device)]
        if device_rates.device is not DeviceKind.CPU and factors:
            why = f"median of {len(factors)} kinds measured on both"
            parallelism = Figure(median(factors), min(factors), max(factors), Basis.MEASURED, (why,))
            rates.append(replace(device_rates, parallelism=parallelism))
        else:
            rates.append(device_rates)
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
    shares = dict(_parts(measured, rates))
    if not shares:
        return None
    least, most = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
    how = f"{len(shares)} kinds at their largest sizes, from {least} to {most}"
    return Figure(median(shares.values()), shares[least], shares[most], Basis.MEASURED, (how,))


def _parts(measured: Sequence[Measured], rates: Rates) -> Iterable[tuple[str, float]]:
    for subject_runs in measured:
        if subject_runs.subject.implementation.device is not rates.device or subject_runs.subject.kind in _ROWS:
            continue
        operator, run = subject_runs.operators[-1], subject_runs.runs[-1]
        work = work_of(operator)
        if work is None or (work.operations and work.unit not in ARITHMETIC):
            continue
        if (bound := bound_s(work, operator, rates)) is not None:
            yield subject_runs.subject.name, bound[0] / run.seconds
