"""Task files: YAML documents, one task each, as resources; every error names file, line, key and the expected form.

A program's text and an operator graph may be in separate files next to the task's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.manifests.quantities import Duration, Moment, Size
from controller.apiserver.manifests.reading import MOST_BYTES, quantity
from controller.apiserver.manifests.schema import Environment, Labels
from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.base import Line, Name, Priority, Text
from controller.apiserver.resources.operator_graphs import operators_of
from controller.apiserver.resources.predecessors import (
    MOST_EDGES,
    After,
    DataInput,
    DataOutput,
    OnFailure,
    cycle_in,
    cycle_text,
)
from controller.apiserver.resources.startable import image_problem
from controller.apiserver.resources.task import (
    DataRead,
    OperatorCount,
    Program,
    ProgramKind,
    ProgramTable,
    TaskSpec,
    UnitChoice,
)
from controller.cluster.operators import OperatorError, files
from dataplane.clock import NS_PER_S
from dataplane.config import Document, Strict, loads_documents
from dataplane.errors import ConfigError
from dataplane.given import read_given_text
from dataplane.topology.values import DeviceKind

_ACCELERATED: Final = "accelerated"
"""Profile of the task scheduler that chooses devices for operators."""
_MEASURED: Final = "measured"


class TableScript(Strict, frozen=True):
    """A table of SQL whose file is not on the submitter's machine: its rows and columns, by DuckDB's types."""

    file: Line
    rows: Annotated[int, Meta(ge=1)] | None = None
    columns: Annotated[dict[Line, Line], Meta(max_length=1024)] = msgspec.field(default_factory=dict)


class ProgramScript(Strict, frozen=True):
    """The program to run; the text of a `file` is read when the task is submitted.

    `tables` are those that SQL reads: Parquet or CSV files at the centre, by name.
    """

    kind: ProgramKind
    entry: Line = ""
    text: Text = ""
    file: Line | None = None
    arguments: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    environment: Environment = msgspec.field(default_factory=dict)
    tables: Annotated[dict[Name, Line | TableScript], Meta(max_length=64)] = msgspec.field(default_factory=dict)


class ReadScript(Strict, frozen=True):
    """Bytes that a task reads from a host of the topology."""

    host: Line
    size: Size


class InputScript(Strict, frozen=True):
    """Data that a task reads from one that it runs after: a named output of it, or so many bytes."""

    task: Name
    output: Name | None = None
    size: Size | None = None


class OutputScript(Strict, frozen=True):
    """Data that a task leaves at the centre where it ran."""

    name: Name
    size: Size


class TaskScript(Strict, frozen=True):
    """A task; `millrace` is the format version."""

    millrace: Literal[1]
    program: ProgramScript
    name: Name | None = None
    """Default: the file's name and a number."""
    labels: Labels = msgspec.field(default_factory=dict)
    category: Name | None = None
    type: Name | None = None
    """Tasks of one type are assumed to behave alike."""
    graph: Line | None = None
    """A file with its operators, as written by `millrace probe trace --out`."""
    operators: Annotated[tuple[files.OperatorSpec, ...], Meta(max_length=1024)] = ()
    flows: Annotated[tuple[files.FlowSpec, ...], Meta(max_length=4096)] = ()
    trace: bool = False
    """Run it once, locally, to find its operators."""
    centre: Name | None = None
    unit: Name | None = None
    units: Annotated[tuple[Annotated[int, Meta(ge=1, le=1 << 30)], ...], Meta(max_length=64)] = ()
    """Acceptable numbers of units; empty: as many as help."""
    centres: Annotated[int, Meta(ge=1, le=64)] = 1
    """Number of centres that run it at the same time, each on `units`."""
    choice: UnitChoice = UnitChoice.CONFIGURATION
    profile: Name | None = None
    """Default: `accelerated` for SQL with tables, whose operators then get devices; else `measured`."""
    priority: Priority = 0
    reads: Annotated[tuple[ReadScript, ...], Meta(max_length=256)] = ()
    after: After = ()
    """Tasks that must have succeeded before it starts: of this file, or submitted earlier."""
    inputs: Annotated[tuple[InputScript, ...], Meta(max_length=MOST_EDGES)] = ()
    """Data from tasks, which it therefore runs after."""
    outputs: Annotated[tuple[OutputScript, ...], Meta(max_length=64)] = ()
    on_failure: OnFailure = OnFailure.CANCEL
    """Its fate if a predecessor fails or is deleted: cancel, run or wait."""
    expected: dict[DeviceKind, Duration] = msgspec.field(default_factory=dict)
    """Expected run time by kind of device, until one is measured."""
    not_before: Moment | None = None
    deadline: Moment | None = None
    """A time, or a duration from submission: until then it may wait for good hours."""
    limit: Duration | None = None
    """A task that runs longer is stopped."""
    repetitions: Annotated[int, Meta(ge=1, le=10_000)] = 1


def read_tasks(path: Path, now_ns: int) -> tuple[tuple[Task, bool], ...]:
    """Return the tasks of a file, each with whether to trace it; raise ConfigError."""
    try:
        text = read_given_text(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    return loads_tasks(text, now_ns, file=str(path), folder=path.parent)


def loads_tasks(
    text: str, now_ns: int, *, file: str = "<text>", folder: Path | None = None
) -> tuple[tuple[Task, bool], ...]:
    """Return the tasks of a YAML text; file names in it are relative to `folder`. Raise ConfigError."""
    documents = loads_documents(text, TaskScript, file=file, decode=quantity)
    if not documents:
        raise ConfigError("it contains no task", file=file)
    stem = "task" if folder is None else _name_of(Path(file).stem)
    tasks = tuple(_task(document, now_ns, folder or Path(), stem) for document in documents)
    names = [task.metadata.name for task, _ in tasks]
    if twice := next((name for index, name in enumerate(names) if name in names[:index]), None):
        raise ConfigError(f"it contains task {twice} twice", file=file)
    return _predecessors_first(tasks, dict(zip(names, documents, strict=True)))


def _predecessors_first(
    tasks: Sequence[tuple[Task, bool]], documents: Mapping[str, Document[TaskScript]]
) -> tuple[tuple[Task, bool], ...]:
    """Return tasks in an order in which each may be submitted, otherwise that of the file; raise ConfigError."""
    by_name = {task.metadata.name: (task, is_traced) for task, is_traced in tasks}
    edges = {name: task.spec.predecessors for name, (task, _) in by_name.items()}
    if cycle := cycle_in(edges):
        document = documents[cycle[0]]
        raise document.error(f"a cycle: {cycle_text(cycle)}", "after" if document.value.after else "inputs")
    ordered: dict[str, None] = {}
    for name in by_name:
        waiting = [name]
        while waiting:
            missing = [before for before in edges[waiting[-1]] if before in by_name and before not in ordered]
            if missing:
                waiting.append(missing[0])
            else:
                ordered[waiting.pop()] = None
    return tuple(by_name[name] for name in ordered)


def numbered(stem: str, now_ns: int) -> str:
    """Return a name for an unnamed task: the stem and the submission time."""
    at = datetime.fromtimestamp(now_ns / NS_PER_S, UTC)
    return f"{_name_of(stem)[:60]}-{at:%Y%m%d-%H%M%S}-{now_ns // 1000 % 1_000_000:06d}"


def _task(document: Document[TaskScript], now_ns: int, folder: Path, stem: str) -> tuple[Task, bool]:
    script = document.value
    spec = TaskSpec(
        program=_program(document, folder),
        category=script.category,
        task_type=script.type,
        operators=_operators(document, folder),
        centre=script.centre,
        unit=script.unit,
        units=script.units,
        centres=script.centres,
        choice=_choice(document),
        profile=script.profile or (_ACCELERATED if script.program.tables else _MEASURED),
        priority=script.priority,
        reads=tuple(DataRead(host=read.host, nbytes=read.size.value) for read in script.reads),
        after=script.after,
        inputs=_inputs(document),
        outputs=tuple(DataOutput(name=output.name, nbytes=output.size.value) for output in script.outputs),
        on_failure=script.on_failure,
        expected={kind: duration.value for kind, duration in script.expected.items()},
        not_before_ns=None if script.not_before is None else script.not_before.at_ns(now_ns),
        deadline_ns=None if script.deadline is None else script.deadline.at_ns(now_ns),
        limit_s=None if script.limit is None else script.limit.value,
        is_probe=script.program.kind is ProgramKind.PROBE,
        repetitions=script.repetitions,
    )
    if spec.deadline_ns is not None and spec.deadline_ns <= max(now_ns, spec.not_before_ns or 0):
        raise document.error("ends before it may start", "deadline")
    if script.trace and (script.program.kind is not ProgramKind.PYTHON or spec.operators):
        problem = "its operators are given" if spec.operators else "only programs of kind python can be traced"
        raise document.error(problem, "trace")
    name = script.name or numbered(stem, now_ns)
    return Task(metadata=Metadata(name=name, labels=script.labels), spec=spec), script.trace


def _program(document: Document[TaskScript], folder: Path) -> Program:
    program = document.value.program
    if program.file is not None and program.text:
        raise document.error("give the program by either `file` or `text`", "program.file")
    text = program.text if program.file is None else _text(document, folder / program.file, "program.file")
    if not text and not program.entry:
        raise document.error("a program is an `entry`, a `text` or a `file`", "program")
    kind = program.kind
    if kind in {ProgramKind.CONTAINER, ProgramKind.PROBE} and not program.entry:
        what = "an image" if kind is ProgramKind.CONTAINER else "a probe task"
        raise document.error(f"a program of kind {kind} names {what} as its entry", "program.entry")
    if kind is ProgramKind.CONTAINER and (problem := image_problem(program.entry)) is not None:
        raise document.error(problem, "program.entry")
    if kind in {ProgramKind.SCRIPT, ProgramKind.SQL} and not text:
        raise document.error(f"a program of kind {kind} has a `text` or a `file`", "program")
    if program.tables and (kind is not ProgramKind.SQL or program.entry or program.arguments):
        problem = (
            "only SQL reads tables" if kind is not ProgramKind.SQL else "SQL with tables has no entry or arguments"
        )
        raise document.error(problem, "program.tables")
    return Program(
        kind=kind,
        entry=program.entry,
        text=text,
        arguments=program.arguments,
        environment=program.environment,
        tables={name: _table(table, folder) for name, table in program.tables.items()},
    )


def _table(table: str | TableScript, folder: Path) -> ProgramTable:
    given = TableScript(file=table) if isinstance(table, str) else table
    return ProgramTable(file=str((folder / given.file).absolute()), rows=given.rows, columns=given.columns)


def _operators(document: Document[TaskScript], folder: Path) -> tuple[OperatorCount, ...]:
    script = document.value
    if script.graph is not None and script.operators:
        raise document.error("give either a `graph` or `operators`", "graph")
    if script.graph is not None:
        return operators_of(files.load(folder / script.graph))
    try:
        graph = files.resolved("operators", script.operators, script.flows)
    except OperatorError as error:
        raise document.error(error.problem, error.at) from None
    return operators_of(graph)


def _inputs(document: Document[TaskScript]) -> tuple[DataInput, ...]:
    for number, data in enumerate(document.value.inputs):
        if (data.output is None) == (data.size is None):
            raise document.error("state either the `output` that is read or its `size`", f"inputs[{number}]")
    return tuple(
        DataInput(task=data.task, output=data.output, nbytes=None if data.size is None else data.size.value)
        for data in document.value.inputs
    )


def _choice(document: Document[TaskScript]) -> UnitChoice:
    script = document.value
    if script.choice is UnitChoice.USER and script.unit is None:
        raise document.error("the user chooses the unit: set `unit`", "choice")
    if script.unit is not None and script.centre is None:
        raise document.error("a unit belongs to a centre: set `centre`", "unit")
    return UnitChoice.USER if script.unit is not None else script.choice


def _text(document: Document[TaskScript], path: Path, key: str) -> str:
    try:
        text = read_given_text(path)
    except OSError as error:
        raise document.error(f"{path}: {error.strerror or error}", key) from None
    except UnicodeDecodeError:
        raise document.error(f"{path}: is not UTF-8 text", key) from None
    if len(text) > 65_536:
        raise document.error(f"{path}: {len(text)} characters exceed the 65536 of a program", key)
    return text


def _name_of(text: str) -> str:
    name = "".join(char if char.isascii() and (char.isalnum() or char in ".-") else "-" for char in text.lower())
    return name.strip(".-") or "task"
