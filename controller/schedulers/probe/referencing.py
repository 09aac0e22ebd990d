"""What a target and its probe take where the probe task is built: the reference that other places are compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from controller.schedulers.probe.errors import ProbeError
from controller.schedulers.probe.running import trying
from controller.schedulers.probe.running.report import Order, Outcome
from controller.schedulers.probe.values import ProbeTask, TargetRun

_AT_LEAST_S: Final = 1.0
"""Four times as long as at a centre: it is measured once, and errs in all predictions."""


def with_reference(probe: ProbeTask, cpu_time_s: float, *, deadline_s: float) -> ProbeTask:
    """Return a probe task with the CPU time of its kernels here, on one core, and of the target, on one core, too.

    Both are CPU times, so that what others do on this machine meanwhile is in neither. `cpu_time_s` is of all
    executions of the target, without the start of its process. ProbeError if the probe fails.
    """
    order = Order(units=1, cores=1, repeat=1, deadline_s=deadline_s, at_least_s=_AT_LEAST_S)
    result = trying.run(probe, order)
    if result.outcome is not Outcome.SUCCEEDED:
        raise ProbeError(f"{probe.name}: run here: {result.outcome.value}: {result.problem}")
    return replace(probe, reference=TargetRun(cpu_time_s, tuple(sorted(result.cpu_s.items()))))
