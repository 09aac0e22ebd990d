"""Completions: release the units that tasks hold, with their outcome; no storage access.

A request takes effect as a whole or not at all. A probe's measurements are stored with its completion, so that a centre
reports them once and only for a probe that it was given.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.registry.task_state import MOST_TASKS, TaskState, check_names, next_version
from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.base import MAX_NAME, Count, Lines, Metadata, Name, Names, Seconds, TimeNs
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase
from controller.common.errors import InvalidError, StaleError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class NewResult(Strict, frozen=True):
    """Measurements of a probe; the server adds the probe, centre and task."""

    status: ProbeResultStatus
    kernels: Annotated[dict[Name, Count], Meta(max_length=256)] = msgspec.field(default_factory=dict)


class Completion(Strict, frozen=True):
    """A task releases its units and enters `phase`: pending is dispatched again, the others are final.

    Only if it was not redispatched since, and, with `heartbeat_ns`, only if its centre last reported then (0: never). A
    task that is being deleted is removed.
    """

    task: Name
    epoch: Count
    phase: TaskPhase
    exit_code: int | None = None
    run_time_s: Seconds | None = None
    """From its start to its end, as measured by its engine."""
    result: NewResult | None = None
    could_run: Names = ()
    reasons: Lines = ()
    heartbeat_ns: TimeNs | None = None
    centre: Name | None = None
    """Centre of the part that has ended, if several centres run the task."""

    def __post_init__(self) -> None:
        if self.phase not in (*TASK_ENDED, TaskPhase.PENDING):
            raise ValueError(f"phase: a completed task must be succeeded, failed or pending, not {self.phase.value}")


class CompletionRequest(Strict, frozen=True):
    """Completions that take effect together."""

    completions: Annotated[tuple[Completion, ...], Meta(min_length=1, max_length=MOST_TASKS)]
    decision: NewDecision | None = None


def complete(state: TaskState, request: CompletionRequest, now_ns: int) -> TaskState:
    """Return the state after a request; raise StaleError for a task that was redispatched."""
    check_names([item.task for item in request.completions])
    made = TaskState()
    for item in request.completions:
        task = state.held(item.task, item.epoch)
        name = _centre_of(task, item)
        centre = made.centres.get(name) or state.centres.get(name)
        if centre is not None:
            _check_silent(item, centre)
            left = tuple(share for share in centre.shares if share.task != item.task)
            made.centres[name] = replace(centre, shares=left)
        result = None if item.result is None else result_of(task, item.result)
        if result is not None:
            made.results[result.metadata.name] = result
        task, whole = _member_completed(task, item, name) if task.status.members else (task, item)
        if whole is None:
            made.tasks[item.task] = task
        elif task.metadata.deleting_ns is not None:
            made.tasks[item.task] = None
        else:
            made.tasks[item.task] = _completed(task, whole, result, now_ns)
    made.centres = {name: next_version(centre) for name, centre in made.centres.items()}
    return made


def result_of(task: Task, new: NewResult) -> ProbeResult:
    """Return the result of a completed probe, named after task and epoch; raise InvalidError for any other task."""
    name, spec = task.metadata.name, task.spec
    if not spec.is_probe:
        raise InvalidError(f"Task {name} is not a probe: it has no result")
    # A probe that carries its text has no name.
    probe = spec.program.entry or name
    if not _NAME.fullmatch(probe) or len(probe) > MAX_NAME:
        raise InvalidError(f"Task {name}: {probe[:MAX_NAME]!r} is not a name of a probe task")
    made = ProbeResultSpec(
        probe=probe,
        centre=task.status.centre or "",
        task_type=spec.task_type,
        unit=task.status.unit,
        task=name,
        kernels=new.kernels,
    )
    # Only the evaluation sets score and points.
    runs = tuple(replace(run, score=None, points={}, notes=()) for run in new.status.runs)
    status = replace(
        new.status,
        runs=runs,
        score=None,
        score_units=None,
        points={},
        policy="",
        policy_digest="",
        unit=task.status.unit,
        units=task.status.units,
    )
    # The uid distinguishes later tasks of the same name.
    ending = f".{task.metadata.uid[:8]}.{task.status.epoch}"
    label = name[: MAX_NAME - len(ending)].rstrip(".-")
    return ProbeResult(metadata=Metadata(name=f"{label}{ending}"), spec=made, status=status)


def _completed(task: Task, item: Completion, result: ProbeResult | None, now_ns: int) -> Task:
    status = replace(
        task.status,
        phase=item.phase,
        exit_code=item.exit_code,
        run_time_s=item.run_time_s,
        result=None if result is None else result.metadata.name,
        reasons=item.reasons,
        could_run=item.could_run or task.status.could_run,
    )
    if item.phase in TASK_ENDED:
        started_ns = status.started_ns
        if started_ns is None and item.run_time_s is not None:  # it ended before anyone reported it running
            started_ns = max(now_ns - round(item.run_time_s * NS_PER_S), 0)
        return replace(task, status=replace(status, started_ns=started_ns, finished_ns=now_ns))
    left = replace(
        status,
        centre=None,
        unit=None,
        units=None,
        operator_devices=(),
        engine_id="",
        started_ns=None,
        members=(),
        stopping="",
    )
    return replace(task, status=left)


def _centre_of(task: Task, item: Completion) -> str:
    """Return the centre of what a completion ends; raise an error unless that is held there."""
    name = task.metadata.name
    if not task.status.members:
        if item.centre not in {None, task.status.centre}:
            raise StaleError(f"Task {name} is at centre {task.status.centre}, not {item.centre}")
        return task.status.centre or ""
    if item.centre is None:
        raise InvalidError(f"Task {name} runs at several centres: a completion names one")
    if item.centre not in task.held_units:
        raise StaleError(f"Task {name} holds nothing of centre {item.centre}")
    return item.centre


def _member_completed(task: Task, item: Completion, centre: str) -> tuple[Task, Completion | None]:
    """Return a task whose part at a centre has ended, and the completion of the whole once all parts have.

    As soon as a part has not succeeded, the others are to stop. The whole has failed if any part has, is pending again
    if any was given back, and otherwise has succeeded.
    """
    members = tuple(
        replace(member, phase=item.phase, exit_code=item.exit_code, run_time_s=item.run_time_s, reasons=item.reasons)
        if member.centre == centre
        else member
        for member in task.status.members
    )
    stopping = task.status.stopping
    if not stopping and item.phase is not TaskPhase.SUCCEEDED:
        why = f"centre {centre}: {'; '.join(item.reasons) or item.phase.value}"
        stopping = f"a part of the task has ended: {why}"[:1024]
    task = replace(task, status=replace(task.status, members=members, stopping=stopping))
    if task.held_units:
        return task, None
    phases = {member.phase for member in members}
    phase = next((phase for phase in (TaskPhase.FAILED, TaskPhase.PENDING) if phase in phases), TaskPhase.SUCCEEDED)
    codes = [member.exit_code for member in members if member.phase is phase and member.exit_code is not None]
    times_s = [member.run_time_s for member in members if member.run_time_s is not None]
    whole = replace(
        item,
        phase=phase,
        exit_code=max(codes, default=None, key=abs),
        run_time_s=max(times_s, default=None),
        reasons=tuple(
            f"centre {member.centre}: {reason}"[:1024]
            for member in members
            if member.phase is phase
            for reason in member.reasons
        )[:256],
    )
    return task, whole


def _check_silent(item: Completion, centre: Centre) -> None:
    """Raise StaleError if a centre assumed silent has reported."""
    if item.heartbeat_ns is not None and (centre.status.heartbeat_ns or 0) != item.heartbeat_ns:
        raise StaleError(f"Centre {centre.metadata.name} has reported since: Task {item.task} is kept")
