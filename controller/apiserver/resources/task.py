"""Task: a program that a compute centre runs on some of its units, including probes."""

from __future__ import annotations

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
from controller.apiserver.resources.startable import environment_problem, image_problem, words_problem
from controller.common.errors import InvalidError, StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role
from dataplane.topology.values import NumberFormat


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
    repetitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    profile: Name = "measured"
    """Scheduler profile that decides about it."""
    choice: UnitChoice = UnitChoice.CONFIGURATION
    asks: bool = False
    """Run nothing and hold no units: the centre answers with the unit types that could run it (`could_run`)."""
    reads: Annotated[tuple[DataRead, ...], Meta(max_length=256)] = ()
    priority: Priority = 0
    not_before_ns: TimeNs | None = None
    deadline_ns: TimeNs | None = None
    limit_s: Seconds | None = None

    @property
    def leaves_count(self) -> bool:
        """True for a probe whose centre picks the number of units: it states none and leaves the choice to it."""
        return self.is_probe and not self.asks and self.choice is UnitChoice.CENTRE and not self.units


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


class TaskStatus(Strict, frozen=True):
    """Location and state.

    Dispatches, picks and completions write centre, unit, units, epoch, operator_devices, could_run, exit_code, result
    and times.
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
)
"""Parts of the status that only the server writes."""
_SCHEDULERS: Final = ("decision", "cost", "expected_s")
"""Parts of the status that centres may not write."""
_MAY_CHANGE: Final = frozenset({"priority"})


class Task(Resource, frozen=True):
    """A program for a compute centre."""

    spec: TaskSpec
    status: TaskStatus = TaskStatus()
    kind: Literal["Task"] = "Task"

    @property
    def is_held(self) -> bool:
        """True if it holds units of a centre."""
        return self.status.phase in HELD


class TaskStrategy(Strategy[Task]):
    """Tasks: dispatches, picks and completions decide what they hold; the spec is fixed from then on."""

    def prepare(self, new: Task, principal: Principal, server: Server) -> Task:
        """Begin with the submitter's name."""
        return replace(new, status=TaskStatus(user=principal.name))

    def validate(self, current: Task | None, wanted: Task) -> None:
        """Refuse a spec that contradicts what the task holds, or has been, and secrets without a project."""
        if current is not None:
            _check_spec(current, wanted)
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

    def prepare_status(self, current: Task, wanted: Task, principal: Principal, server: Server) -> Task:
        """Keep what actions write, and for centres also what schedulers write."""
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
        return Usage(tasks=1, pending=int(waits), units=max(resource.spec.units, default=picked or 1))

    def priority(self, resource: Task) -> int:
        """Return the priority of the spec."""
        return resource.spec.priority


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
        "centre": lambda task: task.status.centre,
        "phase": lambda task: task.status.phase.value,
        "probe": lambda task: "true" if task.spec.is_probe else "false",
    },
    columns={
        "phase": lambda task: task.status.phase.value,
        "centre": lambda task: task.status.centre,
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
