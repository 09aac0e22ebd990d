"""What runs the kernels: each use's repetitions, the mean of their outputs, and on to the uses that it feeds.

It runs in a process of its own, whose end says what went wrong (`supervising`); what happens is told event by event.
"""

from __future__ import annotations

import importlib
import math
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from controller.schedulers.probe.errors import ProbeError, ProbeKernelError
from controller.schedulers.probe.running.results import Repetition
from controller.schedulers.probe.running.steady import Series, began, ended
from controller.schedulers.probe.values import KernelUse, Library, Prepared, ProbeTask

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mean = float | NDArray[np.float64]

Tell = Callable[[str, Any], None]
"""Takes an event's name, and what belongs to it."""


class WrongValueError(ProbeError):
    """An output is further from its true value than its kernel may be."""


def versions() -> dict[str, str]:
    """Return what figures depend on beside the machine."""
    return {"python": platform.python_version(), "numpy": np.__version__}


def prepare(use: KernelUse, seed: int) -> Prepared:
    """Return a use's kernel with its data; ProbeKernelError names kernel and entry where that cannot be."""
    owner, entry = f"kernel {use.kernel} version {use.version}", use.implementation.entry
    if use.implementation.library is Library.CONTAINER:
        raise ProbeKernelError(f"{owner}: {entry} is a container, which a runner of kernels in Python does not start")
    module, _, function = entry.partition(":")
    try:
        make = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ProbeKernelError(f"{owner}: {entry} is not here: {error}") from error
    return cast("Prepared", make(dict(use.sizes), seed))


def work(probe: ProbeTask, repeat: int, at_least_s: float, tell: Tell) -> None:
    """Make all kernels ready, run the probe task once to warm up and then `repeat` times; each of these is told.

    It then goes on untold until the kernels have run for `at_least_s` in all, for the seconds of an execution in a
    program that runs for long (`steady`).
    """
    prepared = {}
    for index, name in enumerate(probe.order):
        tell("preparing", name)
        prepared[name] = prepare(probe.use[name], probe.seed + index)
    tell("warm-up", run_once(probe, prepared, tell, Series()))
    series, latest = Series(), sum(use.repetitions for use in probe.uses)
    for _ in range(repeat):
        tell("repetition", run_once(probe, prepared, tell, series))
    while not series.is_enough(latest, at_least_s):
        run_once(probe, prepared, tell, series)
    tell("steady", series.steady_s())


def run_once(probe: ProbeTask, prepared: Mapping[str, Prepared], tell: Tell, series: Series) -> Repetition:
    """Run the whole probe task once; WrongValueError names the use whose output is wrong.

    What is spent on checking outputs against their true values is not in the run time. The series takes in each
    execution.
    """
    means: dict[str, Mean] = {}
    times: dict[str, tuple[float, ...]] = {}
    accuracies: dict[str, float] = {}
    run_time_s = 0.0
    for name in probe.order:
        tell("use", name)
        use, start_s = probe.use[name], time.perf_counter()
        inputs = tuple(means[source] for source in probe.sources[name])
        found, times[name], accuracies[name], checking_s = _repeated(use, prepared[name], inputs, series)
        means[name] = np.mean(np.asarray(found), axis=0)
        run_time_s += time.perf_counter() - start_s - checking_s
    return Repetition(run_time_s=run_time_s, kernels_s=times, accuracies=accuracies)


def _repeated(
    use: KernelUse, kernel: Prepared, inputs: tuple[Mean, ...], series: Series
) -> tuple[list[Any], tuple[float, ...], float, float]:
    """Return the outputs of a use's repetitions, their seconds, the worst error, and the seconds of checking."""
    outputs, times, worst, checking_s = [], [], 0.0, 0.0
    for _ in range(use.repetitions):
        start = began()
        output = kernel.run(inputs)
        end = ended()
        series.add(use.name, start, end)
        error = float(kernel.accuracy(output))
        if not error <= use.tolerance:
            said = "is no number" if math.isnan(error) else f"has a relative error of {error:.3g}"
            raise WrongValueError(f"use {use.name}: its output {said}, at most {use.tolerance:g} is right")
        outputs.append(output)
        times.append(end.wall_s - start.wall_s)
        worst = max(worst, error)
        checking_s += time.perf_counter() - end.wall_s
    return outputs, tuple(times), worst, checking_s
