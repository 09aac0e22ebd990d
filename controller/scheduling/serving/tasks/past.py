"""Past measurements and runs at compute centres, by place, from a view."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.resources import ProbeResult, Task
from controller.apiserver.resources.task import TaskPhase
from controller.scheduling.serving.tasks.view import TasksView, has_ended
from dataplane.clock import NS_PER_S

_HELD_FACTOR: Final = 2.0
_HELD_S: Final = 5.0
_SUCCEEDED: Final = "succeeded"


@dataclass(slots=True)
class PastRuns:
    """Run times of tasks by place, type and units; and all ended tasks, including probes, by centre."""

    runs_s: dict[tuple[str, str], dict[str, dict[int, list[float]]]] = field(default_factory=dict)
    ended: dict[str, list[Task]] = field(default_factory=dict)


@dataclass(slots=True)
class Measured:
    """Results by place and probe."""

    results: dict[tuple[str, str], dict[str, list[ProbeResult]]] = field(default_factory=dict)
    centres: dict[str, list[ProbeResult]] = field(default_factory=dict)
    """Results by centre."""
    probed: set[str] = field(default_factory=set)
    """Centres where any probe has a good run."""

    def of_centre(self, centre: str) -> list[ProbeResult]:
        """Return all results of a centre."""
        return self.centres.get(centre, [])


def measured_of(view: TasksView) -> Measured:
    """Return the measurements in a view's results, oldest first."""
    measured = Measured()
    for result in sorted(view.results.values(), key=lambda result: (result.metadata.created_ns, result.metadata.name)):
        location = (result.spec.centre, result.status.unit or result.spec.unit or "")
        measured.centres.setdefault(result.spec.centre, []).append(result)
        measured.results.setdefault(location, {}).setdefault(result.spec.probe, []).append(result)
        if any(run.outcome == _SUCCEEDED and run.run_times_s for run in result.status.runs):
            measured.probed.add(result.spec.centre)
    return measured


def past_runs_of(view: TasksView) -> PastRuns:
    """Return the runs of a view's tasks, in the order in which they ended."""
    past_runs = PastRuns()
    ended = [task for task in view.tasks.values() if has_ended(task) and task.status.centre is not None]
    for task in sorted(ended, key=lambda task: (task.status.finished_ns or 0, task.metadata.name)):
        status, seconds = task.status, run_time_s(task)
        past_runs.ended.setdefault(status.centre or "", []).append(task)
        if task.spec.is_probe or seconds is None:
            continue
        for centre, unit, units in _places_of(task):
            times = past_runs.runs_s.setdefault((centre, unit), {}).setdefault(view.type_of(task), {})
            times.setdefault(units, []).append(seconds)
    return past_runs


def _places_of(task: Task) -> list[tuple[str, str, int]]:
    """Return centre, unit type and units of all parts of a task that has run."""
    status = task.status
    parts = [(member.centre, member.unit, member.units) for member in status.members]
    return parts or [(status.centre or "", status.unit or "", status.units or 0)]


def spent_of(measured: Measured) -> dict[str, float]:
    """Return the unit-seconds that each probe has used."""
    spent: defaultdict[str, float] = defaultdict(float)
    for by_probe in measured.results.values():
        for probe, results in by_probe.items():
            runs = (run for result in results for run in result.status.runs)
            spent[probe] += sum(run.units * (sum(run.run_times_s) + (run.start_s or 0.0)) for run in runs)
    return spent


def run_time_s(task: Task) -> float | None:
    """Return the run time of a task that has succeeded, None for any other.

    Uses the centre's measurement, unless the server has seen the task hold its units for much longer: then that time.
    """
    status = task.status
    if status.phase is not TaskPhase.SUCCEEDED or status.started_ns is None or status.finished_ns is None:
        return None
    held_s = max(status.finished_ns - status.started_ns, 0) / NS_PER_S
    if status.run_time_s is None or held_s > _HELD_FACTOR * status.run_time_s + _HELD_S:
        return held_s
    return status.run_time_s
