"""Task: a program that a compute centre runs on some of its units; a probe is one too."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import (
    Count,
    Kind,
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
from dataplane.config import Strict
from dataplane.topology.values import NumberFormat


class ProgramKind(StrEnum):
    """What a task's program is."""

    PYTHON = "python"
    SCRIPT = "script"
    CONTAINER = "container"
    SQL = "sql"
    PROBE = "probe"


class Program(Strict, frozen=True):
    """What is run: an entry point, a script's text, an image, SQL, or a probe task of kernels."""

    kind: ProgramKind
    entry: Line = ""
    """`module:function`, an image, a probe task's name."""
    text: Text = ""
    arguments: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    environment: Annotated[dict[Line, Text], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    secrets: Secrets = msgspec.field(default_factory=dict)


class OperatorCount(Strict, frozen=True):
    """An operator of the program's graph: how often it runs, on what shapes, and which ones it feeds."""

    name: Line
    operator: Line
    count: Count = 1
    shapes: Annotated[tuple[tuple[Count, ...], ...], Meta(max_length=16)] = ()
    feeds: Annotated[tuple[Line, ...], Meta(max_length=1024)] = ()
    sizes: Annotated[dict[Line, Count], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    """As its kind names them."""
    number_format: NumberFormat | None = None
    input_bytes: Count | None = None
    output_bytes: Count | None = None
    seconds: Seconds | None = None
    """What all its executions took together, where somebody has measured it."""
    code: Text = ""
    """Of user-written code: its normalised syntax tree, for matching."""
    library: Annotated[str, Meta(max_length=64)] = ""
    """What the program does it with: numpy, scipy, torch, duckdb, python."""


class DataRead(Strict, frozen=True):
    """Bytes that a task reads from a host of the topology."""

    host: Line
    nbytes: Count


class UnitChoice(StrEnum):
    """Who chooses the unit type that a task, or a probe, runs on.

    configuration: the scheduler, from what centres report that their units support. asked: the scheduler, from what
    the centre answers. user: whoever submits it, in `unit`. centre: the centre, which reports what it used.
    """

    CONFIGURATION = "configuration"
    ASKED = "asked"
    USER = "user"
    CENTRE = "centre"


class TaskSpec(Strict, frozen=True):
    """What is to run; `centre`, `unit` and `units` where users choose."""

    program: Program
    category: Name | None = None
    task_type: Name | None = None
    """Tasks of one type are taken to behave alike: results of a probe hold for all."""
    operators: Annotated[tuple[OperatorCount, ...], Meta(max_length=1024)] = ()
    is_probe: bool = False
    centre: Name | None = None
    unit: Name | None = None
    units: Annotated[tuple[Count, ...], Meta(max_length=64)] = ()
    """How many run it at a time; of a probe, one run for each of several."""
    repetitions: Annotated[int, Meta(ge=1, le=10_000)] = 1
    profile: Name = "measured"
    """How the scheduler decides about it."""
    choice: UnitChoice = UnitChoice.CONFIGURATION
    asks: bool = False
    """Nothing is run and no units are held: the centre answers with the unit types that could (`could_run`)."""
    reads: Annotated[tuple[DataRead, ...], Meta(max_length=256)] = ()
    priority: Priority = 0
    not_before_ns: TimeNs | None = None
    deadline_ns: TimeNs | None = None
    limit_s: Seconds | None = None


class TaskPhase(StrEnum):
    """Where a task is in its life."""

    PENDING = "pending"
    PROBING = "probing"
    DISPATCHED = "dispatched"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


HELD = (TaskPhase.DISPATCHED, TaskPhase.RUNNING)
"""Phases in which a task has units of a centre."""
TASK_ENDED = (TaskPhase.SUCCEEDED, TaskPhase.FAILED)


class TaskStatus(Strict, frozen=True):
    """Where it runs and what became of it.

    Dispatches, picks and completions write centre, unit, units, epoch, operator_devices, could_run, exit_code, result
    and times.
    """

    phase: TaskPhase = TaskPhase.PENDING
    centre: Name | None = None
    unit: Name | None = None
    units: Count | None = None
    epoch: Count = 0
    """Counts its dispatches: what an older one has started is to end."""
    operator_devices: OperatorDevices = ()
    """Where the scheduler that dispatched it wants its operators to run, of what each of its units has."""
    could_run: Names = ()
    """Unit types of its centre that could have run it, where it asks, or where the centre chose."""
    dispatched_ns: TimeNs | None = None
    engine_id: Line = ""
    started_ns: TimeNs | None = None
    finished_ns: TimeNs | None = None
    exit_code: int | None = None
    run_time_s: Seconds | None = None
    """From its start to its end as its engine has measured it; times in ns are the server's."""
    result: Name | None = None
    """The ProbeResult that it left."""
    decision: Name | None = None
    cost: Seconds | None = None
    user: Line = ""
    """Who has submitted it, as the server knows him."""
    expected_s: Seconds | None = None
    """How long it was expected to run when it was dispatched, at most."""
    reasons: Lines = ()


class Task(Resource, frozen=True):
    """A program for a compute centre."""

    spec: TaskSpec
    status: TaskStatus = TaskStatus()
    kind: Literal["Task"] = "Task"

    @property
    def is_held(self) -> bool:
        """Whether it has units of a centre."""
        return self.status.phase in HELD


TASK = Kind(
    "Task",
    "tasks",
    Task,
    fields={
        "centre": lambda task: task.status.centre,
        "phase": lambda task: task.status.phase.value,
        "probe": lambda task: "true" if task.spec.is_probe else "false",
    },
)
