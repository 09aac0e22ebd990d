"""Peak rates of devices: memory bytes by STREAM's triad on all cores, arithmetic by matrix products, and the bus.

The triad is that of the probe kernels: on a CPU each core runs its own part of it at the same time, as numpy's loops
release other threads. The bus is measured by copies of pinned memory to the GPU, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, Final

from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.values import Figure, Rates
from controller.cluster.estimates import Basis
from controller.probing.kernels.loading import Checked, prepare
from controller.probing.values import Implementation, Library
from dataplane.topology.values import DeviceKind, NumberFormat

# Time of a prepared kernel: the shortest execution, after one that is checked instead of timed.
#
# Other activity of the machine only makes executions longer: the shortest one is the operator's own time.


Clock = Callable[[], int]
"""A monotonic clock in nanoseconds."""

_NS_PER_S: Final = 1e9
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
        found.append(max(clock() - start_ns, 1) / _NS_PER_S)
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
            found.append(nbytes / (max(clock() - start_ns, 1) / _NS_PER_S))
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
        found.append(nbytes / (max(clock() - start_ns, 1) / _NS_PER_S))
    return found[1:]


def _figure(rates: Sequence[float], how: str) -> Figure:
    """Return the maximum, the least disturbed value, with the median as its lower bound."""
    return Figure(max(rates), median(rates), max(rates), Basis.MEASURED, (f"{how}, {len(rates)} times",))
