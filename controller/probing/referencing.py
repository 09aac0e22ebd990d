"""The reference that other places are compared with: times of a target and its probe where the probe task is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from controller.probing.errors import ProbeError
from controller.probing.running import trying
from controller.probing.running.report import Order, Outcome
from controller.probing.values import ProbeTask, TargetRun

_AT_LEAST_S: Final = 0.5
"""Least duration of each of two measurements, twice that at a centre: its error enters all predictions."""


def with_reference(probe: ProbeTask, target_s: Callable[[], float | None], *, deadline_s: float) -> ProbeTask:
    """Return a probe task with the CPU time here, on one core, of its kernels and of the target.

    Both are CPU times, so that other load on this machine is in neither. `target_s` runs the target and returns the CPU
    time of all its executions in seconds, without the start of its process; None leaves the probe as it is. Kernels run
    before and after it, because a machine's speed changes within minutes. Raises ProbeError if the probe fails.
    """
    before = _kernels_s(probe, deadline_s)
    cpu_time_s = target_s()
    if cpu_time_s is None:
        return probe
    after = _kernels_s(probe, deadline_s)
    means = tuple((use, (seconds + after[use]) / 2) for use, seconds in sorted(before.items()))
    return replace(probe, reference=TargetRun(cpu_time_s, means))


def _kernels_s(probe: ProbeTask, deadline_s: float) -> Mapping[str, float]:
    order = Order(units=1, cores=1, repeat=1, deadline_s=deadline_s, at_least_s=_AT_LEAST_S)
    result = trying.run(probe, order)
    if result.outcome is not Outcome.SUCCEEDED:
        raise ProbeError(f"{probe.name}: run here: {result.outcome.value}: {result.problem}")
    return result.cpu_s
