"""Dispatches and picks: assign units of a centre to tasks, which hold them until completion; no storage access.

A request takes effect as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.placements import NOT_MOVED, NewDecision
from controller.apiserver.registry.task_state import MOST_TASKS, TaskState, check_names, next_version
from controller.apiserver.resources import Centre, Task
from controller.apiserver.resources.base import Count, Name, Names, Seconds
from controller.apiserver.resources.centre import UnitShare
from controller.apiserver.resources.operator_devices import OperatorDevices, problem_of
from controller.apiserver.resources.predecessors import OnFailure, PredecessorEnd
from controller.apiserver.resources.task import HELD, TASK_ENDED, Member, TaskPhase, ends_of
from controller.common.errors import InvalidError, StaleError
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


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


def dispatch(
    state: TaskState, request: DispatchRequest, now_ns: int, moved: Mapping[str, int] = NOT_MOVED
) -> TaskState:
    """Return the state after a request; raise StaleError if it no longer fits.

    `moved` counts the same batch's changes of the version of a centre's shares, which are no reason to refuse.
    """
    check_names([item.task for item in request.dispatches])
    made = TaskState()
    for item in request.dispatches:
        task = state.task(item.task)
        _check_task(task, item)
        ends = ends_of(task, state.predecessors)
        _check_predecessors(task, ends, state.predecessors)
        _check_devices(task, item, state.centre(item.centre))
        for part in item.parts:
            before = state.centre(part.centre)
            _check_version(before, part.shares_version, moved)
            _check_centre(before, now_ns)
            share = UnitShare(
                task=item.task, uid=task.metadata.uid, epoch=task.status.epoch + 1, unit=part.unit, units=part.units
            )
            made.centres[part.centre] = with_units(made.centres.get(part.centre, before), share)
        made.tasks[item.task] = _dispatched(task, item, request.decision, now_ns, ends)
    # Once per centre, however many of its tasks the request dispatches.
    made.centres = {name: next_version(centre) for name, centre in made.centres.items()}
    return made


def pick(state: TaskState, item: Pick) -> TaskState:
    """Apply a centre's choice to a task and its share; raise StaleError if it does not fit."""
    task = state.held(item.task, item.epoch)
    centre = state.centre(task.status.centre or "")
    if task.status.unit not in (None, item.unit):
        raise StaleError(f"Task {item.task} has units of type {task.status.unit}, there is no unit to pick")
    share = next((held for held in centre.shares if held.task == item.task), None)
    if share is None:
        raise StaleError(f"Task {item.task} holds nothing of Centre {centre.metadata.name}")
    units = share.units if item.units is None else item.units
    _check_picked(task, item, units)
    moved = with_units(centre, replace(share, unit=item.unit, units=units))
    status = replace(task.status, unit=item.unit, units=units, could_run=item.could_run)
    return TaskState({item.task: replace(task, status=status)}, {centre.metadata.name: next_version(moved)})


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


def _members(item: Dispatch) -> tuple[Member, ...]:
    """Return the parts of a task of several centres, () for any other."""
    if not item.others:
        return ()
    return tuple(Member(centre=part.centre, unit=part.unit or "", units=part.units) for part in item.parts)


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
