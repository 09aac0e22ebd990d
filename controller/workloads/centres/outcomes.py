"""Outcome of a job, from its results in its folder; these are treated as written by an attacker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.acceleration.running.tasks.values import MOST_RAN_BYTES, RAN_FILE, Ran, decode_ran, summary
from controller.apiserver.registry.completions import Completion, NewResult
from controller.apiserver.resources import Task
from controller.apiserver.resources.probe_result import ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import TaskPhase
from controller.probing.errors import ProbeError
from controller.probing.running.report import Outcome
from controller.probing.running.results import MAX_BYTES, decode, to_probe_run
from controller.probing.values import ProbeTask
from controller.workloads.centres.engines.base import ERRORS_FILE, JobPhase, JobState
from controller.workloads.centres.engines.jobs.places import read_end, read_file
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.programs import counts_of, result_file
from dataplane.malformed import MALFORMED

_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 5
_LINE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Measured:
    """Results of a probe, and their problems."""

    runs: tuple[ProbeRun, ...]
    problems: tuple[str, ...]


def completion_of(task: Task, job: JobState, folder: Path, probe: ProbeTask | None) -> Completion:
    """Return the completion of a task whose job has ended."""
    phase = TaskPhase.SUCCEEDED if job.phase is JobPhase.SUCCEEDED else TaskPhase.FAILED
    reasons = [job.reason] if job.reason else []
    result = None
    if probe is not None and task.spec.is_probe:
        measured = _measured(task, folder, probe)
        reasons += [problem for problem in measured.problems if problem not in reasons]
        if measured.problems:
            phase = TaskPhase.FAILED
        status = ProbeResultStatus(runs=measured.runs, could_run=task.status.could_run, problems=_lines(reasons))
        result = NewResult(status=status, kernels={use.name: use.repetitions for use in probe.uses})
    elif phase is TaskPhase.FAILED:
        reasons += _tail(folder)
    elif (ran := ran_of(task, folder)) is not None:
        reasons += outcome_lines(task, ran)
    return Completion(
        task=task.metadata.name,
        epoch=task.status.epoch,
        phase=phase,
        exit_code=job.exit_code,
        run_time_s=_run_time_s(job),
        result=result,
        could_run=task.status.could_run,
        reasons=_lines(reasons),
    )


def ran_of(task: Task, folder: Path) -> Ran | None:
    """Return how SQL over tables ran, None for other tasks, or if its job left nothing readable."""
    if not task.spec.program.tables:
        return None
    try:
        return decode_ran(read_file(folder, RAN_FILE, MOST_RAN_BYTES))
    except (CentreError, *MALFORMED):
        return None


def outcome_lines(task: Task, ran: Ran) -> list[str]:
    """Return how a statement ran, and its expected beside its measured time."""
    lines = [summary(ran)]
    if expected_s := expected_of(task):
        lines.append(f"its operators: {sum(expected_s.values()):.3g} s expected, {ran.seconds:.3g} s measured")
    return lines


def expected_of(task: Task) -> dict[str, float]:
    """Return the expected seconds of a task's operators, by kind; nothing if any is unknown."""
    kinds = {operator.name: operator.operator for operator in task.spec.operators}
    expected_s: dict[str, float] = {}
    for chosen in task.status.operator_devices:
        if chosen.seconds is None or chosen.operator not in kinds:
            return {}
        expected_s[kinds[chosen.operator]] = expected_s.get(kinds[chosen.operator], 0.0) + chosen.seconds
    return expected_s


def _run_time_s(job: JobState) -> float | None:
    if job.started_ns is None or job.finished_ns is None:
        return None
    return min(max(job.finished_ns - job.started_ns, 0) / 1e9, 1e9)


def _measured(task: Task, folder: Path, probe: ProbeTask) -> _Measured:
    """Return the runs on each number of units; one that differs from the request is a problem, not a run."""
    runs, problems = [], []
    for units in counts_of(task):
        file = result_file(units)
        try:
            result = decode(read_file(folder, file, MAX_BYTES), source=file)
        except (CentreError, ProbeError) as error:
            problems.append(f"on {units} units: {error}")
            continue
        if (result.probe, result.units) != (probe.name, units):
            problems.append(f"{file}: is for probe {result.probe} on {result.units} units, which was not requested")
            continue
        if result.outcome is not Outcome.SUCCEEDED:
            problems.append(f"on {units} units: {result.outcome.value}: {result.problem}")
        runs.append(to_probe_run(result, unit=task.status.unit))
    return _Measured(tuple(runs), tuple(problems))


def _tail(folder: Path) -> list[str]:
    """Return the last lines of a job's errors."""
    try:
        text = read_end(folder, ERRORS_FILE, _TAIL_BYTES).decode("utf-8", "replace")
    except CentreError:
        return []
    return [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]


def _lines(lines: Sequence[str]) -> tuple[str, ...]:
    printable = ("".join(char if char.isprintable() else " " for char in line) for line in lines)
    return tuple(line[:_LINE] for line in printable if line.strip())[:256]
