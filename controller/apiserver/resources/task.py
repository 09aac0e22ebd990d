"""Task: a program that a compute centre runs on some of its units, including probes; its rules are in task_rules.py."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

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
from controller.apiserver.resources.operator_devices import OperatorDevices
from controller.apiserver.resources.predecessors import (
    After,
    Ends,
    Inputs,
    OnFailure,
    Outputs,
    PredecessorEnd,
)
from dataplane.config import Strict
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
