"""`millrace task submit`: a file of tasks, or an unmodified script."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address, client_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.task.sql import planned, tables_of
from controller.apps.cli.task.waiting import Timeout, Wait

if TYPE_CHECKING:
    from controller.apiserver.resources import Task

_TASK_FILES: Final = frozenset({".yaml", ".yml", ".json"})
"""Endings of files of tasks; all others are scripts."""
_STOPPED: Final = 0.95
"""Share of the limit from which a trace counts as stopped by it."""


def submit(  # noqa: PLR0917 - a command line's options
    words: Annotated[
        list[str], typer.Argument(metavar="FILE | -- SCRIPT.py [ARGUMENT...]", help="Tasks (YAML), or a script.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the script's task; default: the script's, with the time.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Task type; tasks of one type behave alike.")] = None,
    category: Annotated[str | None, typer.Option(help="hpc, ai, sql, io, network, memory.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Run it once here to trace its operators.")] = False,
    trace_limit: Annotated[
        float, typer.Option(parser=in_seconds(0.1, 86_400), help="Time limit of a trace, which then fails.")
    ] = 60.0,
    graph: Annotated[Path | None, typer.Option(metavar="FILE", help="File with its operator graph.")] = None,
    centre: Annotated[str | None, typer.Option(help="Run it at this centre.")] = None,
    unit: Annotated[str | None, typer.Option(help="Run it on units of this type.")] = None,
    units: Annotated[str | None, typer.Option(metavar="N[,N...]", help="Possible numbers of units.")] = None,
    profile: Annotated[
        str | None, typer.Option(help="Scheduling policy; default: accelerated for SQL with tables, else measured.")
    ] = None,
    deadline: Annotated[str | None, typer.Option(metavar="TIME", help="2030-01-31T12:00:00Z, or 2 h.")] = None,
    priority: Annotated[int, typer.Option(help="Priority: the higher comes first.")] = 0,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME=FILE", help="Table of a .sql file, in a file at the centre.")
    ] = None,
    after: Annotated[
        list[str] | None, typer.Option(metavar="TASK", help="Run it once this task has succeeded; repeatable.")
    ] = None,
    wait: Wait = False,
    timeout: Timeout = 3600.0,
    address: Address = None,
) -> None:
    """Submit tasks of a file (.yaml), or a script (.py, .sql, any other) after `--`, whose text is sent with the task.

    SQL with tables is planned: its operators get devices when the task is dispatched.
    """
    now_ns = time.time_ns()
    _ask(address)
    if Path(words[0]).suffix in _TASK_FILES:
        given = {
            "--name": name, "--type": type_, "--category": category, "--graph": graph, "--centre": centre,
            "--unit": unit, "--units": units, "--deadline": deadline, "--table": table, "--after": after,
        }  # fmt: skip
        _refuse_options([*(option for option, value in given.items() if value is not None), *words[1:]])
        tasks = _tasks_of_file(Path(words[0]), now_ns, trace=trace, limit_s=trace_limit)
    else:
        document = {
            "name": name, "type": type_, "category": category, "centre": centre, "unit": unit,
            "units": None if units is None else _counts(units), "profile": profile, "deadline": deadline,
            "priority": priority, "graph": None if graph is None else str(graph.absolute()), "after": after,
        }  # fmt: skip
        tasks = (_task_of_script(words, document, now_ns, tables=table or (), trace=trace, limit_s=trace_limit),)
    with client_of(address) as client:
        for task in tasks:
            made = client.of(type(task)).create(task)
            typer.echo(f"task {made.metadata.name} is submitted")
    if wait:
        from controller.apps.cli.task.waiting import until_ended  # noqa: PLC0415

        asyncio.run(until_ended(address, [task.metadata.name for task in tasks], timeout))


def _ask(address: str | None) -> None:
    """Check that the API server answers, before a trace that may take a minute."""
    from controller.apiserver.resources import Centre  # noqa: PLC0415

    with client_of(address) as client:
        client.of(Centre).list()


def _tasks_of_file(path: Path, now_ns: int, *, trace: bool, limit_s: float) -> tuple[Task, ...]:
    from controller.apiserver.manifests.tasks import read_tasks  # noqa: PLC0415

    tasks = read_tasks(path, now_ns)
    return tuple(_traced(task, path.parent, limit_s) if trace or wanted else planned(task) for task, wanted in tasks)


def _task_of_script(
    words: Sequence[str],
    document: Mapping[str, object],
    now_ns: int,
    *,
    tables: Sequence[str],
    trace: bool,
    limit_s: float,
) -> Task:
    """Return a script's task, parsed like a file so that the same checks apply."""
    import json  # noqa: PLC0415

    from controller.apiserver.manifests.tasks import loads_tasks, numbered  # noqa: PLC0415

    script = Path(words[0])
    kind = {".py": "python", ".sql": "sql"}.get(script.suffix, "script")
    program: dict[str, object] = {"kind": kind, "file": str(script.absolute()), "arguments": list(words[1:])}
    if tables:
        program["tables"] = tables_of(tables)
    fields = {key: value for key, value in document.items() if value is not None}
    text = json.dumps({"millrace": 1, "name": numbered(script.stem, now_ns), "program": program} | fields)
    task, _ = loads_tasks(text, now_ns, file="command line")[0]
    return _traced(task, script.parent, limit_s) if trace else planned(task)


def _traced(task: Task, folder: Path, limit_s: float) -> Task:
    """Return a task with the operators that its program ran when traced in a separate process on this machine."""
    import tempfile  # noqa: PLC0415

    from msgspec.structs import replace  # noqa: PLC0415

    from controller.apiserver.resources.operator_graphs import traced_operators  # noqa: PLC0415
    from controller.cluster.operators.tracing import trace_target  # noqa: PLC0415
    from controller.common.errors import ControllerError  # noqa: PLC0415

    program, name = task.spec.program, task.metadata.name
    if task.spec.operators or program.kind != "python":
        raise ControllerError(f"task {name}: only programs of kind python, without operators, can be traced")
    with tempfile.TemporaryDirectory(prefix="millrace-submit-", dir=folder) as scratch:
        target = program.entry
        if program.text:
            module = program.entry.partition(":")[0] or "task"
            file = Path(scratch) / f"{module}.py"
            file.write_text(program.text, encoding="utf-8")
            target = f"{file}{program.entry[len(module) :]}"
        traced = trace_target(
            target, program.arguments, name=name, category=task.spec.category or "", deadline_s=limit_s
        )
    why = "; ".join(traced.problems)
    if traced.run_time_s >= _STOPPED * limit_s:
        # Counts and time of a partial run would be too small.
        raise ControllerError(
            f"task {name}: not traced to its end within {limit_s:g} s ({why}):"
            " give its operators, or raise --trace-limit"
        )
    if not traced.graph.operators:
        raise ControllerError(
            f"task {name}: a trace of it has no operators ({why}): submit it without --trace, or with its operators"
        )
    for problem in traced.problems:
        typer.echo(f"millrace: {name}: {problem}", err=True)
    operators = traced_operators(traced.graph, traced.seconds, traced.run_time_s)
    typer.echo(
        f"{name}: {len(operators)} operators traced in {traced.run_time_s:.3g} s, {traced.share:.0%} of it in them"
    )
    return replace(task, spec=replace(task.spec, operators=operators))


def _refuse_options(given: Sequence[str]) -> None:
    if given:
        raise typer.BadParameter(f"{', '.join(given)}: only for a script; in a file, set it per task")


def _counts(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise typer.BadParameter(f"--units {text}: expected numbers, such as 1,2,4")
    return [int(word) for word in words]
