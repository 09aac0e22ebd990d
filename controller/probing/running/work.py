"""Runs the kernels: each use's repetitions, the mean of their outputs, and its transfer to the uses that it feeds.

It runs in a separate process, whose end says what went wrong (`supervising`), and reports event by event.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import re
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from controller.probing.kernels import loading
from controller.probing.kernels.base import Value
from controller.probing.running.crew import Crew, Ready, Shared, is_shared
from controller.probing.running.failing import FailedError
from controller.probing.running.report import MOST_FIGURES, MOST_TIMES, Order, Outcome, Repetition, folded
from controller.probing.running.steady import Series, began, ended
from controller.probing.running.warming.imports import saved_s
from controller.probing.values import KernelUse, Library, ProbeTask

Tell = Callable[[str, Any], None]
"""Callback for an event's name and its data."""
_KIB: Final = 1024
_STRANGE: Final = re.compile(r"[^a-z0-9.-]+")
_LONGEST_NAME: Final = 100
_CHECKED: Final = 8
"""Repetitions of a use that are compared with the true value, besides the last one."""


def work(probe: ProbeTask, order: Order, tell: Tell) -> None:
    """Prepare all kernels, run each once to warm up, and the probe task as often as ordered; report each run.

    Then run on without reports until the kernels have run for `at_least_s` in all, to estimate the seconds of an
    execution in a program that runs for long (`steady`).
    """
    with ExitStack() as stack:
        crew = _crew(probe, order, stack)
        _import(probe, tell)
        ready = _prepare(probe, crew, tell, stack)
        # Freeze existing objects: a garbage collection that walks all of torch takes a tenth of a second, once in
        # minutes of a task, and would be a third of the measurement here.
        gc.freeze()
        _warm_up(probe, ready, tell)
        series, latest = Series(), sum(use.repetitions for use in probe.uses)
        most = max(1, MOST_TIMES // (order.repeat * len(probe.uses)))
        for _ in range(order.repeat):
            tell("repetition", _as_reported(run_once(probe, ready, tell, series), most))
        while not series.is_enough(latest, order.at_least_s):
            run_once(probe, ready, tell, series, is_checked=False)
        tell("steady", series.steady_s())
        tell("cpu", series.cpu_s())
        tell("saved", series.stretch * saved_s(("numpy", *(use.implementation.library.value for use in probe.uses))))
        tell("figures", _figures(ready))
        own_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB
        tell("memory", own_bytes + (0 if crew is None else crew.peak_bytes()))
    tell("done", None)


def run_once(
    probe: ProbeTask, ready: Mapping[str, Ready], tell: Tell, series: Series, *, is_checked: bool = True
) -> Repetition:
    """Run the whole probe task once; raise FailedError with the use whose output is wrong.

    The run time includes forming means, but not comparing outputs with their true values. The series records each
    execution.
    """
    means: dict[str, Value] = {}
    times: dict[str, tuple[float, ...]] = {}
    accuracies: dict[str, float] = {}
    read = {link.src for link in probe.links}
    run_time_s = 0.0
    for name in probe.order:
        tell("use", name)
        start_s = time.perf_counter()
        ready[name].begin(tuple(means[source] for source in probe.sources[name]))
        times[name], accuracies[name], checking_s = _repeated(probe.use[name], ready[name], series, is_checked)
        if name in read:
            means[name] = ready[name].mean()
        ready[name].end()
        run_time_s += time.perf_counter() - start_s - checking_s
    return Repetition(run_time_s, times, accuracies)


def _repeated(use: KernelUse, ready: Ready, series: Series, is_checked: bool) -> tuple[tuple[float, ...], float, float]:
    """Return the seconds of a use's repetitions, the worst error, and the seconds of checking."""
    times, worst, checking_s = [], 0.0, 0.0
    for number in range(1, use.repetitions + 1):
        start = began()
        ready.run()
        end = ended()
        series.add(use.name, start, end)
        times.append(end.wall_s - start.wall_s)
        is_chosen = is_checked and (number <= _CHECKED or number == use.repetitions)
        start_s = time.perf_counter()
        worst = max(worst, _settled(use, ready, is_chosen))
        checking_s += time.perf_counter() - start_s if is_chosen else 0.0
    return tuple(times), worst, checking_s


def _settled(use: KernelUse, ready: Ready, is_checked: bool) -> float:
    error = ready.settle(is_checked=is_checked)
    if not error <= use.tolerance:
        problem = f"a relative error of {error:.3g}" if math.isfinite(error) else "invalid numbers"
        raise FailedError(
            Outcome.WRONG_VALUE, f"use {use.name}: its output has {problem}, at most {use.tolerance:g} is allowed"
        )
    return error


def _figures(ready: Mapping[str, Ready]) -> dict[str, float]:
    """Return the kernels' figures of their last runs, as USE.NAME, in letters that the API allows in names."""
    figures = {}
    for use, prepared in ready.items():
        for name, value in prepared.figures().items():
            word = _STRANGE.sub("-", name.lower()).strip("-.")
            if word and math.isfinite(value):
                figures[f"{use}.{word}"[:_LONGEST_NAME]] = value
    return dict(sorted(figures.items())[:MOST_FIGURES])


def _as_reported(repetition: Repetition, most: int) -> dict[str, Any]:
    """Return a repetition as reported, with at most this many times per use."""
    kernels_s = {name: folded(times, most) for name, times in repetition.kernels_s.items()}
    return {"run_time_s": repetition.run_time_s, "kernels_s": kernels_s, "accuracies": repetition.accuracies}


def _crew(probe: ProbeTask, order: Order, stack: ExitStack) -> Crew | None:
    """Return the processes that share work, None if there are none, or nothing to share."""
    if order.cores == 1 or not any(is_shared(use) for use in probe.uses):
        return None
    crew = Crew(probe.use, sorted(os.sched_getaffinity(0)))
    stack.callback(crew.close)
    return crew


def _import(probe: ProbeTask, tell: Tell) -> None:
    """Import the kernels' libraries, which a target also does once when it starts."""
    for name in probe.order:
        tell("preparing", name)
        use = probe.use[name]
        if use.implementation.library is not Library.CONTAINER:
            loading.load(f"{use.kernel}.{use.version}", use.implementation)
    tell("imported", {"python": platform.python_version(), "numpy": np.__version__})


def _prepare(probe: ProbeTask, crew: Crew | None, tell: Tell, stack: ExitStack) -> dict[str, Ready]:
    """Return each use with its data, which are the same for the same seed."""
    ready: dict[str, Ready] = {}
    read = {link.src for link in probe.links}
    for index, name in enumerate(probe.order):
        tell("preparing", name)
        use, seed, is_read = probe.use[name], probe.seed + index, name in read
        if crew is not None and is_shared(use):
            ready[name] = Shared(use, seed, crew, is_read=is_read)
        else:
            ready[name] = Ready(use, dict(use.sizes), seed, is_read=is_read)
        stack.callback(ready[name].close)
    tell("prepared", None)
    return ready


def _warm_up(probe: ProbeTask, ready: Mapping[str, Ready], tell: Tell) -> None:
    """Run each use once, without inputs: memory is touched, libraries start their threads, and clocks speed up."""
    for name in probe.order:
        tell("use", name)
        ready[name].begin(())
        ready[name].run()
        ready[name].settle(is_checked=False)
        ready[name].end()
    tell("warm", None)
