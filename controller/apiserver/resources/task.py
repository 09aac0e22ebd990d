"""Task: a program that a compute centre runs on some of its units, including probes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.base import (
    Count,
    Line,
    Lines,
    Name,
    Names,
    Priority,
    Resource,
    Seconds,
    Secrets,
    Text,
    TimeNs,
)
from controller.apiserver.resources.kind import Kind, Own, Rights, Server, Strategy, Usage, Verb, check_secrets
from controller.apiserver.resources.operator_devices import OperatorDevices
from controller.apiserver.resources.predecessors import (
    After,
    Ends,
    Inputs,
    OnFailure,
    Outputs,
    PredecessorEnd,
    cycle_text,
    cycle_through,
)
from controller.apiserver.resources.startable import environment_problem, image_problem, words_problem
from controller.common.errors import InvalidError, StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role
from dataplane.topology.values import DeviceKind, NumberFormat


class ProgramKind(StrEnum):
    """Kind of a task's program."""

    PYTHON = "python"
    SCRIPT = "script"
    CONTAINER = "container"
    SQL = "sql"
    PROBE = "probe"


class ProgramTable(Strict, frozen=True):
    """A table that SQL reads: its file at the centre, and its rows and columns (DuckDB types) when it was planned.

    Units share the rows of the table with `is_sharded`; each has all others whole.
    """

    file: Line
    rows: Count | None = None
    columns: Annotated[dict[Line, Line], Meta(max_length=1024)] = msgspec.field(default_factory=dict)
    is_sharded: bool = False


class Program(Strict, frozen=True):
    """The program: an entry point, a script's text, an image, SQL, or a probe task of kernels."""

    kind: ProgramKind
    entry: Line = ""
    """`module:function`, an image, or the name of a probe task."""
    text: Text = ""
    arguments: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    tables: Annotated[dict[Name, ProgramTable], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    """Tables of SQL, by name; with them a statement is split over units, and its operators run on chosen devices."""
    environment: Annotated[dict[Line, Text], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    secrets: Secrets = msgspec.field(default_factory=dict)


class OperatorCount(Strict, frozen=True):
    """An operator of the program's graph: number of executions, shapes, and the operators that it feeds."""

    name: Line
    operator: Line
    count: Count = 1
    shapes: Annotated[tuple[tuple[Count, ...], ...], Meta(max_length=16)] = ()
    feeds: Annotated[tuple[Line, ...], Meta(max_length=1024)] = ()
    sizes: Annotated[dict[Line, Count], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    """Sizes, named as in its kind."""
    number_format: NumberFormat | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    seconds: Seconds | None = None
    """Measured total time of its executions, if known."""
    code: Text = ""
    """Normalised syntax tree of user-written code, for matching."""
    library: Annotated[str, Meta(max_length=64)] = ""
    """Library that implements it: numpy, scipy, torch, duckdb, python."""


class DataRead(Strict, frozen=True):
    """Bytes that a task reads from a host of the topology."""

    host: Line
    nbytes: Count


class UnitChoice(StrEnum):
    """Party that chooses the unit type for a task or a probe.

    configuration: the scheduler, from the units that centres report as supported. asked: the scheduler, from the
    centre's answer. user: the submitter, in `unit`. centre: the centre, which reports its choice; of a probe that
    states `unit` but no `units` it chooses the number alone.
    """

    CONFIGURATION = "configuration"
    ASKED = "asked"
    USER = "user"
    CENTRE = "centre"


class TaskSpec(Strict, frozen=True):
    """The program to run and its requirements; `centre`, `unit` and `units` if users choose them."""

    program: Program
    category: Name | None = None
    task_type: Name | None = None
    """Tasks of one type are assumed to behave alike: results of a probe apply to all."""
    operators: Annotated[tuple[OperatorCount, ...], Meta(max_length=1024)] = ()
    is_probe: bool = False
    centre: Name | None = None
    unit: Name | None = None
    units: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    """Number of units to run on; for a probe, one run for each number.

    A probe with choice `centre` and no number leaves that to the centre too.
    """
    centres: Annotated[int, Meta(ge=1, le=64)] = 1
    """Number of centres that run it at the same time, each on `units`; it gets all of them or none."""
    repetitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    profile: Name = "measured"
    """Scheduler profile that decides about it."""
    choice: UnitChoice = UnitChoice.CONFIGURATION
    asks: bool = False
    """Run nothing and hold no units: the centre answers with the unit types that could run it (`could_run`)."""
    reads: Annotated[tuple[DataRead, ...], Meta(max_length=256)] = ()
    after: After = ()
    """Tasks that must have succeeded before it starts."""
    inputs: Inputs = ()
    """Data from tasks, which it therefore runs after."""
    outputs: Outputs = ()
    """Data that it leaves where it ran."""
    on_failure: OnFailure = OnFailure.CANCEL
    """Its fate if a predecessor fails or is deleted."""
    expected: Annotated[dict[DeviceKind, Seconds], Meta(max_length=16)] = msgspec.field(default_factory=dict)
    """Run time that its user expects on units with a kind of device; counts only as long as none is measured."""
    priority: Priority = 0
    not_before_ns: TimeNs | None = None
    deadline_ns: TimeNs | None = None
    limit_s: Seconds | None = None

    @property
    def leaves_count(self) -> bool:
        """True for a probe whose centre picks the number of units: it states none and leaves the choice to it."""
        return self.is_probe and not self.asks and self.choice is UnitChoice.CENTRE and not self.units

    @property
    def predecessors(self) -> tuple[str, ...]:
        """Tasks that it runs after, each once."""
        if not self.after and not self.inputs:
            return ()
        return tuple(dict.fromkeys((*self.after, *(data.task for data in self.inputs))))


class TaskPhase(StrEnum):
    """Phase in the life of a task."""

    PENDING = "pending"
    PROBING = "probing"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


HELD = (TaskPhase.DISPATCHED, TaskPhase.RUNNING)
"""Phases in which a task holds units of a centre."""
TASK_ENDED = (TaskPhase.SUCCEEDED, TaskPhase.FAILED)


class Member(Strict, frozen=True):
    """The part of a task that one of its centres runs."""

    centre: Name
    unit: Name
    units: Count
    phase: TaskPhase = TaskPhase.DISPATCHED
    """Pending if the centre has given it back."""
    engine_id: Line = ""
    exit_code: int | None = None
    run_time_s: Seconds | None = None
    reasons: Lines = ()


class TaskStatus(Strict, frozen=True):
    """Location and state.

    Dispatches, picks and completions write centre, unit, units, epoch, operator_devices, could_run, exit_code, result,
    members and times. For a task at several centres, centre, unit and units are those of its first member.
    """

    phase: TaskPhase = TaskPhase.PENDING
    centre: Name | None = None
    unit: Name | None = None
    units: Count | None = None
    epoch: Count = 0
    """Number of dispatches so far: runs started under an earlier one must stop."""
    operator_devices: OperatorDevices = ()
    """Device per operator, chosen by the scheduler among the devices of each unit."""
    could_run: Names = ()
    """Unit types of its centre that could have run it, if it asks or the centre chose."""
    dispatched_ns: TimeNs | None = None
    engine_id: Line = ""
    started_ns: TimeNs | None = None
    finished_ns: TimeNs | None = None
    exit_code: int | None = None
    run_time_s: Seconds | None = None
    """From its start to its end, as measured by its engine; times in ns are the server's."""
    result: Name | None = None
    """The ProbeResult that it produced."""
    decision: Name | None = None
    cost: Seconds | None = None
    user: Line = ""
    """Submitter, as identified by the server."""
    expected_s: Seconds | None = None
    """Longest expected run time at dispatch."""
    predecessors: Ends = ()
    """Predecessors that have ended."""
    members: Annotated[tuple[Member, ...], Meta(max_length=64)] = ()
    """Parts of a task that several centres run, in the order of their ranks."""
    stopping: Line = ""
    """The end of a member that has not succeeded, for which the others are being stopped."""
    reasons: Lines = ()


_ACTIONS: Final = (
    "centre",
    "unit",
    "units",
    "epoch",
    "operator_devices",
    "could_run",
    "dispatched_ns",
    "started_ns",
    "finished_ns",
    "exit_code",
    "run_time_s",
    "result",
    "user",
    "members",
    "stopping",
)
"""Parts of the status that only the server writes."""
_SCHEDULERS: Final = ("decision", "cost", "expected_s", "predecessors")
"""Parts of the status that centres may not write."""
_MAY_CHANGE: Final = frozenset({"priority"})
_EDGES: Final = ("after", "inputs", "outputs")
"""Parts of the spec that never change: the cycle check at creation relies on it."""


class Task(Resource, frozen=True):
    """A program for a compute centre."""

    spec: TaskSpec
    status: TaskStatus = TaskStatus()
    kind: Literal["Task"] = "Task"

    @property
    def is_held(self) -> bool:
        """True if it holds units of a centre."""
        return self.status.phase in HELD

    @property
    def held_units(self) -> dict[str, int]:
        """Units that it holds, by centre."""
        status = self.status
        if not self.is_held:
            return {}
        if status.members:
            return {member.centre: member.units for member in status.members if member.phase in HELD}
        return {} if status.centre is None else {status.centre: status.units or 0}

    @property
    def all_units(self) -> int:
        """Units of all parts that were dispatched, whether it still holds them or not."""
        return sum(member.units for member in self.status.members) or self.status.units or 0

    def at(self, centre: str) -> Task:
        """Return the task as one of its centres sees it: the status of its own part."""
        member = next((member for member in self.status.members if member.centre == centre), None)
        if member is None:
            return self
        parts = {name: getattr(member, name) for name in member.__struct_fields__}
        return replace(self, status=replace(self.status, **parts))


class TaskStrategy(Strategy[Task]):
    """Tasks: dispatches, picks and completions decide what they hold; the spec is fixed from then on."""

    def prepare(self, new: Task, principal: Principal, server: Server) -> Task:
        """Begin with the submitter's name."""
        return replace(new, status=TaskStatus(user=principal.name))

    def validate(self, current: Task | None, wanted: Task) -> None:
        """Refuse a spec that contradicts what the task holds, or has been, and secrets without a project."""
        if current is not None:
            _check_edges(current, wanted)
            _check_spec(current, wanted)
        _check_data(wanted)
        _check_centres(wanted)
        program = wanted.spec.program
        check_secrets("Task", wanted.metadata, named=bool(program.secrets))
        if current is None or current.spec.program != program:
            if program.kind is ProgramKind.CONTAINER and program.entry and (problem := image_problem(program.entry)):
                raise InvalidError(f"Task {wanted.metadata.name}: entry: {problem}")
            # The entry point is the first word.
            arguments = words_problem(("program", *program.arguments))
            if problem := arguments or environment_problem(program.environment):
                part = "arguments" if arguments else "environment"
                raise InvalidError(f"Task {wanted.metadata.name}: {part}: {problem}")

    async def check_references(self, new: Task, principal: Principal, server: Server) -> None:
        """Refuse predecessors that do not exist, or that would run after the task itself."""
        names, name = new.spec.predecessors, new.metadata.name
        if not names:
            return
        existing = await server.find_all(TASK, [before for before in names if before != name])
        for before in names:
            task = existing.get(before)
            # To a user, tasks of others do not exist.
            is_hidden = task is not None and principal.role is Role.USER and not _is_of_one_account(task, new)
            if before != name and (task is None or is_hidden):
                raise InvalidError(f"Task {name}: after: there is no task {before}")
        _check_outputs(new, existing)

        def waited_for(before: str) -> tuple[str, ...]:
            task = existing.get(before) or server.cached(TASK, before)
            return () if task is None or task.status.phase in TASK_ENDED else task.spec.predecessors

        if cycle := cycle_through(name, names, waited_for):
            raise InvalidError(f"Task {name}: after: a cycle: {cycle_text(cycle)}")

    def prepare_status(self, current: Task, wanted: Task, principal: Principal, server: Server) -> Task:
        """Keep what actions write, and for centres also what schedulers write."""
        if principal.role is Role.CENTRE and current.status.members:
            return member_reported(current, wanted, principal.subject or "", server.now_ns())
        return reported(current, wanted, server.now_ns(), by_centre=principal.role is Role.CENTRE)

    def is_held(self, current: Task) -> bool:
        """Keep a deleted task until its completion."""
        return current.is_held

    def usage(self, resource: Task) -> Usage:
        """Count a task until it has ended."""
        phase = resource.status.phase
        if phase in TASK_ENDED:
            return Usage()
        waits = phase in {TaskPhase.PENDING, TaskPhase.PROBING}
        picked = resource.status.units if resource.spec.leaves_count else None
        units = max(resource.spec.units, default=picked or 1) * resource.spec.centres
        return Usage(tasks=1, pending=int(waits), units=units)

    def priority(self, resource: Task) -> int:
        """Return the priority of the spec."""
        return resource.spec.priority


def ends_of(task: Task, existing: Mapping[str, Task]) -> tuple[PredecessorEnd, ...]:
    """Return how a task's predecessors have ended, as far as they have, by its record and by existing tasks.

    A recorded success stays, whatever became of the name since; a failure stays until a task of the name succeeds.
    """
    recorded = {end.task: end for end in task.status.predecessors}
    ends = []
    for name in task.spec.predecessors:
        end, predecessor = recorded.get(name), existing.get(name)
        if predecessor is not None and not (end is not None and end.succeeded):
            is_over = predecessor.status.phase in TASK_ENDED and predecessor.metadata.deleting_ns is None
            end = _end_of(task, predecessor) if is_over else None
        if end is not None:
            ends.append(end)
    return tuple(ends)


def _end_of(task: Task, predecessor: Task) -> PredecessorEnd:
    status, sizes = predecessor.status, {output.name: output.nbytes for output in predecessor.spec.outputs}
    name = predecessor.metadata.name
    inputs = tuple(
        replace(data, nbytes=sizes.get(data.output or "", 0) if data.nbytes is None else data.nbytes)
        for data in task.spec.inputs
        if data.task == name
    )
    succeeded = status.phase is TaskPhase.SUCCEEDED
    return PredecessorEnd(
        task=name, succeeded=succeeded, centre=status.centre, finished_ns=status.finished_ns, inputs=inputs
    )


def reported(current: Task, made: Task, now_ns: int, *, by_centre: bool) -> Task:
    """Return a task's new status, keeping what actions write; raise StaleError for another epoch.

    Only dispatch and completion change whether a task holds units; its start gets the server's time.
    """
    before, name = current.status, current.metadata.name
    if made.status.epoch != before.epoch:
        raise StaleError(f"Task {name} is in epoch {before.epoch}, no longer in {made.status.epoch}")
    _check_phase(name, before.phase, made.status.phase, by_centre=by_centre)
    parts = (*_ACTIONS, *_SCHEDULERS) if by_centre else _ACTIONS
    status = replace(made.status, **{part: getattr(before, part) for part in parts})
    if status.phase is TaskPhase.RUNNING and before.phase is not TaskPhase.RUNNING:
        status = replace(status, started_ns=now_ns)
    return replace(made, status=status)


def member_reported(current: Task, made: Task, centre: str, now_ns: int) -> Task:
    """Return a task's new status after a report about one of its members; raise StaleError for another epoch.

    It runs once none of its members has yet to start.
    """
    before, name = current.at(centre).status, current.metadata.name
    if made.status.epoch != before.epoch:
        raise StaleError(f"Task {name} is in epoch {before.epoch}, no longer in {made.status.epoch}")
    _check_phase(name, before.phase, made.status.phase, by_centre=True)
    members = tuple(
        replace(member, phase=made.status.phase, engine_id=made.status.engine_id) if member.centre == centre else member
        for member in current.status.members
    )
    status = replace(current.status, members=members)
    if status.phase is TaskPhase.DISPATCHED and all(member.phase is not TaskPhase.DISPATCHED for member in members):
        status = replace(status, phase=TaskPhase.RUNNING, started_ns=now_ns)
    return replace(current, status=status)


def _is_of_one_account(task: Task, other: Task) -> bool:
    return task.metadata.account == other.metadata.account


def _check_edges(current: Task, wanted: Task) -> None:
    """Raise InvalidError for other predecessors, or other data, than at creation."""
    changed = [name for name in _EDGES if getattr(current.spec, name) != getattr(wanted.spec, name)]
    if changed:
        what = " and ".join(changed)
        raise InvalidError(f"Task {current.metadata.name}: its {what} cannot change: delete it and submit it anew")


def _check_data(task: Task) -> None:
    """Raise InvalidError for predecessors of a probe, an input without a size, and an output stated twice."""
    name, spec = task.metadata.name, task.spec
    if spec.predecessors and (spec.is_probe or spec.asks):
        raise InvalidError(f"Task {name}: after: a probe has no predecessors")
    for data in spec.inputs:
        if (data.output is None) == (data.nbytes is None):
            raise InvalidError(f"Task {name}: inputs: from {data.task} either an output or a size is read")
    outputs = [output.name for output in spec.outputs]
    if twice := next((output for index, output in enumerate(outputs) if output in outputs[:index]), None):
        raise InvalidError(f"Task {name}: outputs: {twice} is given twice")


def _check_centres(task: Task) -> None:
    """Raise InvalidError for a task of several centres that only one can run."""
    spec = task.spec
    if spec.centres == 1:
        return
    problems = (
        (spec.is_probe or spec.asks, "a probe runs"),
        (spec.centre is not None, "a task with a stated centre runs"),
        (spec.choice is UnitChoice.CENTRE, "a task whose unit its centre chooses runs"),
        (bool(spec.program.tables), "SQL with tables runs"),
    )
    if problem := next((text for applies, text in problems if applies), None):
        raise InvalidError(f"Task {task.metadata.name}: centres: {problem} at one centre, not at {spec.centres}")


def _check_outputs(task: Task, existing: Mapping[str, Task]) -> None:
    """Raise InvalidError for an input that names an output which its predecessor does not state."""
    for data in task.spec.inputs:
        source = existing.get(data.task)
        stated = () if source is None else tuple(output.name for output in source.spec.outputs)
        if data.output is not None and source is not None and data.output not in stated:
            has = ", ".join(stated) or "none"
            raise InvalidError(
                f"Task {task.metadata.name}: inputs: task {data.task} has no output {data.output}; it has {has}"
            )


def _check_spec(current: Task, wanted: Task) -> None:
    """Raise StaleError for a spec that contradicts what a task holds, or has been."""
    if current.status.phase not in (*HELD, *TASK_ENDED):
        return
    fields = (name for name in current.spec.__struct_fields__ if name not in _MAY_CHANGE)
    fixed = [name for name in fields if getattr(current.spec, name) != getattr(wanted.spec, name)]
    if fixed:
        what = " and ".join(fixed)
        raise StaleError(f"Task {current.metadata.name} is {current.status.phase.value}: its {what} cannot change")


def _check_phase(name: str, before: TaskPhase, after: TaskPhase, *, by_centre: bool) -> None:
    if before in TASK_ENDED and (by_centre or after is not before):
        raise StaleError(f"Task {name} has {before.value}: this is final")
    if before in HELD and after not in HELD:
        raise StaleError(f"Task {name} holds units: it must end by a completion")
    if before not in HELD and after in HELD:
        raise StaleError(f"Task {name} is {before.value}: it must get units by a dispatch")
    if before is TaskPhase.RUNNING and after is not before:
        raise StaleError(f"Task {name} runs: it cannot become {after.value} again in this epoch")
    if before not in TASK_ENDED and after is TaskPhase.SUCCEEDED:
        raise StaleError(f"Task {name} has not run: it cannot have succeeded")


TASK = Kind(
    "Task",
    "tasks",
    Task,
    fields={
        "centre": lambda task: tuple(member.centre for member in task.status.members) or task.status.centre,
        "phase": lambda task: task.status.phase.value,
        "probe": lambda task: "true" if task.spec.is_probe else "false",
    },
    columns={
        "phase": lambda task: task.status.phase.value,
        "centre": lambda task: " ".join(member.centre for member in task.status.members) or task.status.centre,
        "units": lambda task: task.status.units,
    },
    rights=Rights(
        is_private=True,
        users_write=True,
        own={Role.CENTRE: Own("centre", frozenset({Verb.READ, Verb.STATUS, Verb.COMPLETE}))},
    ),
    strategy=TaskStrategy(),
    is_subject=True,
)
