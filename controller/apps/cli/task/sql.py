"""Planning of SQL tasks at their submission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.apiserver.resources import Task
    from controller.apiserver.resources.task import ProgramTable


def tables_of(given: Sequence[str]) -> dict[str, str]:
    """Parse NAME=FILE of the command line; files are those of the centre's machines."""
    tables = {}
    for text in given:
        name, equals, file = text.partition("=")
        if not name or not equals or not file:
            raise typer.BadParameter(f"--table {text}: expected NAME=FILE")
        tables[name] = str(Path(file).absolute())
    return tables


def planned(task: Task) -> Task:
    """Return a SQL task with its operators, and its tables' rows and columns; others as they are."""
    from msgspec.structs import replace  # noqa: PLC0415

    from controller.acceleration.running.errors import RunError  # noqa: PLC0415
    from controller.acceleration.running.steps.submitting import TableFile, plan_task  # noqa: PLC0415
    from controller.apiserver.resources.operator_graphs import operators_of  # noqa: PLC0415
    from controller.cluster.operators import OperatorError  # noqa: PLC0415
    from controller.common.errors import ControllerError  # noqa: PLC0415

    program, name = task.spec.program, task.metadata.name
    if not program.tables or task.spec.operators:
        return task
    files = {
        label: TableFile(Path(table.file), table.rows, table.columns or None) for label, table in program.tables.items()
    }
    try:
        plan = plan_task(program.text, files, name)
    except (RunError, OperatorError) as error:
        raise ControllerError(f"task {name}: {error}") from None
    tables = {
        label: replace(
            program.tables[label],
            rows=table.rows,
            columns=dict(table.columns),
            is_sharded=label == plan.sharded,
        )
        for label, table in plan.tables.items()
    }
    number = len(plan.graph.operators)
    many = f"{number} operator{'s' if number != 1 else ''}"
    typer.echo(f"{name}: {many} planned, sizes by {plan.basis}{_way(plan.why, tables)}")
    spec = replace(task.spec, program=replace(program, tables=tables), operators=operators_of(plan.graph))
    return replace(task, spec=spec)


def _way(why: str, tables: Mapping[str, ProgramTable]) -> str:
    sharded = next((label for label, table in tables.items() if table.is_sharded), "")
    return f"; units share the rows of {sharded}" if sharded else f"; not split over units: {why}"
