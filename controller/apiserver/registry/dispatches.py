"""Dispatches, picks and completions: assign units of a centre to tasks; no storage access.

A request takes effect as a whole or not at all. Units are held from dispatch to completion. A probe's measurements are
stored with its completion, so that a centre reports them once and only for a probe that it was given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.placements import NOT_MOVED, NewDecision
from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.base import MAX_NAME, Count, Lines, Metadata, Name, Names, Seconds, TimeNs
from controller.apiserver.resources.centre import UnitShare
from controller.apiserver.resources.operator_devices import OperatorDevices, problem_of
from controller.apiserver.resources.predecessors import OnFailure, PredecessorEnd
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus
from controller.apiserver.resources.task import HELD, TASK_ENDED, Member, TaskPhase, ends_of
from controller.common.errors import InvalidError, NotFoundError, StaleError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

MOST_TASKS: Final = 256
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


class OtherMember(Strict, frozen=True):
    """A further centre of a task that several centres run, and its units."""

    centre: Name
    unit: Name
    units: Annotated[int, Meta(ge=1, le=1 << 53)] = 1
    shares_version: Count | None = None


class Dispatch(Strict, frozen=True):
    """Dispatch a task to a centre, on some units of a type; without `unit` the centre picks one.

    `task_revision` and `shares_version`, if given, must still be current. A task that only asks gets no units. A task
    of several centres gets all of them at once, or none.
    """

    task: Name
    centre: Name
    unit: Name | None = None
    units: Count = 1
    expected_s: Seconds | None = None
    """Expected run time, for its status."""
    operator_devices: OperatorDevices = ()
    """Device per operator, for its status; each must be a device that a unit of the type has."""
    task_revision: Count | None = None
    shares_version: Count | None = None
    others: Annotated[tuple[OtherMember, ...], Meta(max_length=63)] = ()
    """Its other centres, if several run it."""

    @property
    def centres(self) -> tuple[str, ...]:
        """All its centres, by rank."""
        return tuple(part.centre for part in self.parts)

    @property
    def parts(self) -> tuple[Dispatch | OtherMember, ...]:
        """Centre and units of each part, by rank."""
        return (self, *self.others)


class DispatchRequest(Strict, frozen=True):
    """Dispatches that take effect together, and the decision behind them."""

    dispatches: Annotated[tuple[Dispatch, ...], Meta(min_length=1, max_length=MOST_TASKS)]
    decision: NewDecision | None = None


class Pick(Strict, frozen=True):
    """A centre's choice of unit type for a task that was left to it, and the other types that could have run it."""

    task: Name
    epoch: Count
    unit: Name
    units: Annotated[int, Meta(ge=1, le=1 << 53)] | None = None
    """Number of units, for a probe that leaves it to its centre; null: as dispatched."""
    could_run: Names = ()


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


class DispatchAnswer(Strict, frozen=True):
    """Resources that were written, all at one revision."""

    revision: Count
    tasks: tuple[Name, ...]
    centres: tuple[Name, ...]
    results: tuple[Name, ...] = ()


@dataclass(slots=True)
class TaskState:
    """State of a request's resources, before and after; None for those to delete."""

    tasks: dict[str, Task | None] = field(default_factory=dict)
    centres: dict[str, Centre] = field(default_factory=dict)
    results: dict[str, ProbeResult] = field(default_factory=dict)
    """New results."""
    predecessors: Mapping[str, Task] = field(default_factory=dict)
    """Existing predecessors of its tasks; only read."""


def dispatch(
    state: TaskState, request: DispatchRequest, now_ns: int, moved: Mapping[str, int] = NOT_MOVED
) -> TaskState:
    """Return the state after a request; raise StaleError if it no longer fits.

    `moved` counts the same batch's changes of the version of a centre's shares, which are no reason to refuse.
    """
    _check_names([item.task for item in request.dispatches])
    made = TaskState()
    for item in request.dispatches:
        task = _task(state, item.task)
        _check_task(task, item)
        ends = ends_of(task, state.predecessors)
        _check_predecessors(task, ends, state.predecessors)
        _check_devices(task, item, _centre(state, item.centre))
        for part in item.parts:
            before = _centre(state, part.centre)
            _check_version(before, part.shares_version, moved)
            _check_centre(before, now_ns)
            share = UnitShare(
                task=item.task, uid=task.metadata.uid, epoch=task.status.epoch + 1, unit=part.unit, units=part.units
            )
            made.centres[part.centre] = with_units(made.centres.get(part.centre, before), share)
        made.tasks[item.task] = _dispatched(task, item, request.decision, now_ns, ends)
    # Once per centre, however many of its tasks the request dispatches.
    made.centres = {name: _next_version(centre) for name, centre in made.centres.items()}
    return made


def pick(state: TaskState, item: Pick) -> TaskState:
    """Apply a centre's choice to a task and its share; raise StaleError if it does not fit."""
    task = held(state, item.task, item.epoch)
    centre = _centre(state, task.status.centre or "")
    if task.status.unit not in (None, item.unit):
        raise StaleError(f"Task {item.task} has units of type {task.status.unit}, there is no unit to pick")
    share = next((held for held in centre.shares if held.task == item.task), None)
    if share is None:
        raise StaleError(f"Task {item.task} holds nothing of Centre {centre.metadata.name}")
    units = share.units if item.units is None else item.units
    _check_picked(task, item, units)
    moved = with_units(centre, replace(share, unit=item.unit, units=units))
    status = replace(task.status, unit=item.unit, units=units, could_run=item.could_run)
    return TaskState({item.task: replace(task, status=status)}, {centre.metadata.name: _next_version(moved)})


def complete(state: TaskState, request: CompletionRequest, now_ns: int) -> TaskState:
    """Return the state after a request; raise StaleError for a task that was redispatched."""
    _check_names([item.task for item in request.completions])
    made = TaskState()
    for item in request.completions:
        task = held(state, item.task, item.epoch)
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
    made.centres = {name: _next_version(centre) for name, centre in made.centres.items()}
    return made


def held(state: TaskState, name: str, epoch: int) -> Task:
    """Return a task that holds units since this dispatch; raise StaleError if it holds none or since another."""
    task = _task(state, name)
    if task.status.epoch != epoch:
        raise StaleError(f"Task {name} is in epoch {task.status.epoch}, no longer in {epoch}")
    if task.status.phase not in HELD:
        raise StaleError(f"Task {name} is {task.status.phase.value}: it holds nothing")
    return task


def with_units(centre: Centre, share: UnitShare) -> Centre:
    """Return a centre with a task's share added; raise StaleError if there are too few units.

    Shares whose type the centre is still to pick must fit together with all others, the largest first.
    """
    name = centre.metadata.name
    # A task holds at most one share, so a new one replaces its earlier one.
    shares = (*(other for other in centre.shares if other.uid != share.uid), share)
    made = replace(centre, shares=shares)
    types = {unit.name: unit for unit in centre.status.units}
    if share.unit is not None and share.unit not in types:
        raise StaleError(f"Centre {name} has no units of type {share.unit}")
    if not share.units:
        return made
    left = {unit.name: unit.for_tasks for unit in centre.status.units}
    for other in shares:
        if other.unit is not None and other.unit in left:
            left[other.unit] -= other.units
    if share.unit is not None and left[share.unit] < 0:
        raise StaleError(
            f"Centre {name}: {share.task} wants {share.units} units of type {share.unit},"
            f" {max(left[share.unit] + share.units, 0)} are free"
        )
    for other in sorted(
        (other for other in shares if other.unit is None), key=lambda other: (-other.units, other.task)
    ):
        widest = max(left, key=lambda unit: (left[unit], unit), default=None)
        if widest is None or left[widest] < other.units:
            raise StaleError(f"Centre {name}: {share.task} wants {share.units} units, but no type has that many free")
        left[widest] -= other.units
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


def _dispatched(
    task: Task, item: Dispatch, decision: NewDecision | None, now_ns: int, ends: Sequence[PredecessorEnd]
) -> Task:
    status = replace(
        task.status,
        phase=TaskPhase.DISPATCHED,
        centre=item.centre,
        unit=item.unit,
        units=item.units,
        epoch=task.status.epoch + 1,
        could_run=(),
        dispatched_ns=now_ns,
        engine_id="",
        started_ns=None,
        finished_ns=None,
        exit_code=None,
        run_time_s=None,
        result=None,
        decision=None if decision is None else decision.name,
        expected_s=item.expected_s,
        operator_devices=item.operator_devices,
        predecessors=tuple(ends),
        members=_members(item),
        stopping="",
        reasons=(),
    )
    return replace(task, status=status)


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


def _members(item: Dispatch) -> tuple[Member, ...]:
    """Return the parts of a task of several centres, () for any other."""
    if not item.others:
        return ()
    return tuple(Member(centre=part.centre, unit=part.unit or "", units=part.units) for part in item.parts)


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


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise InvalidError(f"Task {twice} is given twice")


def _check_version(centre: Centre, expected: int | None, moved: Mapping[str, int]) -> None:
    """Raise StaleError if a centre's shares have changed; the batch's own changes do not count."""
    name = centre.metadata.name
    # Compare with the version before the batch, which is the one that the caller has seen.
    version = centre.shares_version - moved.get(name, 0)
    if expected is not None and expected != version:
        raise StaleError(f"shares of Centre {name} are at version {version}, not {expected}")


def _check_task(task: Task, item: Dispatch) -> None:
    name, status, spec = task.metadata.name, task.status, task.spec
    if item.task_revision is not None and item.task_revision != task.metadata.revision:
        raise StaleError(f"Task {name} is at revision {task.metadata.revision}, no longer at {item.task_revision}")
    if task.metadata.deleting_ns is not None:
        raise StaleError(f"Task {name} is being deleted")
    if status.phase in HELD:
        raise StaleError(f"Task {name} is already at centre {status.centre}")
    if status.phase in TASK_ENDED:
        raise StaleError(f"Task {name} has {status.phase.value}")
    for what, wanted, given in (("centre", spec.centre, item.centre), ("unit", spec.unit, item.unit)):
        is_open = what == "unit" and given is None and spec.leaves_count  # it is named again by the pick of a number
        if wanted is not None and wanted != given and not is_open:
            raise StaleError(f"Task {name} is for {what} {wanted}, not {given}")
    if len(item.centres) != spec.centres:
        raise StaleError(f"Task {name} is for {spec.centres} centres at once, not for {len(item.centres)}")
    if len(set(item.centres)) != len(item.centres):
        raise InvalidError(f"Task {name}: its {spec.centres} centres must be different ones")
    if item.others and item.unit is None:
        raise InvalidError(f"Task {name}: a task of several centres needs a unit type at each")
    if spec.asks and (item.units or item.unit is not None):
        raise InvalidError(f"Task {name} is only a query: it gets no units")
    if not spec.asks and not item.units:
        raise InvalidError(f"Task {name} must request at least one unit")


def _check_predecessors(task: Task, ends: Sequence[PredecessorEnd], existing: Mapping[str, Task]) -> None:
    """Raise StaleError for a predecessor that has not succeeded, unless any end of it will do."""
    name, runs_anyway = task.metadata.name, task.spec.on_failure is OnFailure.RUN
    done = {end.task for end in ends if end.succeeded or runs_anyway}
    for before in task.spec.predecessors:
        if before in done or (runs_anyway and before not in existing):
            continue
        predecessor = existing.get(before)
        what = "does not exist" if predecessor is None else f"is {predecessor.status.phase.value}"
        raise StaleError(f"Task {name} runs after {before}, which {what}")


def _check_picked(task: Task, item: Pick, units: int) -> None:
    """Raise StaleError for another unit type than stated, and for a number that is not the centre's to pick."""
    name, spec, status = task.metadata.name, task.spec, task.status
    if spec.unit not in {None, item.unit}:
        raise StaleError(f"Task {name} is for unit {spec.unit}, not {item.unit}")
    if units == status.units:
        return
    if not spec.leaves_count:
        raise StaleError(f"Task {name} was dispatched on {status.units} units: its centre picks no other number")
    if status.unit is not None:
        raise StaleError(f"Task {name} has {status.units} units: their number is picked once")


def _check_centre(centre: Centre, now_ns: int) -> None:
    name, status = centre.metadata.name, centre.status
    if centre.spec.unschedulable:
        raise StaleError(f"Centre {name} does not accept tasks: unschedulable")
    if not status.ready:
        raise StaleError(f"Centre {name} is not ready: {status.reason or 'it has not reported'}")
    if now_ns > (status.heartbeat_ns or 0) + round(centre.spec.lease_s * NS_PER_S):
        raise StaleError(f"Centre {name} has been silent for longer than its lease of {centre.spec.lease_s:g} s")


def _check_devices(task: Task, item: Dispatch, centre: Centre) -> None:
    """Raise InvalidError for operators that the task lacks, StaleError for devices that a unit lacks."""
    if not item.operator_devices:
        return
    if item.unit is None:
        raise InvalidError(f"Task {item.task}: its centre picks its units, so their devices are unknown")
    names = tuple(operator.name for operator in task.spec.operators)
    if problem := problem_of(item.operator_devices, names, DeviceKind):
        raise InvalidError(f"Task {item.task}: {problem}")
    needs = (unit.unit.devices for unit in centre.status.units if unit.name == item.unit)
    kinds = {kind for some in needs for need in some for kind in need.kinds}
    if problem := problem_of(item.operator_devices, names, kinds):
        raise StaleError(f"Task {item.task} on {item.unit} of {item.centre}: {problem}")


def _check_silent(item: Completion, centre: Centre) -> None:
    """Raise StaleError if a centre assumed silent has reported."""
    if item.heartbeat_ns is not None and (centre.status.heartbeat_ns or 0) != item.heartbeat_ns:
        raise StaleError(f"Centre {centre.metadata.name} has reported since: Task {item.task} is kept")


def _next_version(centre: Centre) -> Centre:
    return replace(centre, shares_version=centre.shares_version + 1)


def _task(state: TaskState, name: str) -> Task:
    task = state.tasks.get(name)
    if task is None:
        raise NotFoundError(f"there is no Task {name}")
    return task


def _centre(state: TaskState, name: str) -> Centre:
    centre = state.centres.get(name)
    if centre is None:
        raise NotFoundError(f"there is no Centre {name}")
    return centre
