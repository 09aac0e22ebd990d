"""Parse the targets of `millrace accel`: statements, queries, programs, operator graphs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from dataplane.given import read_given_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.cluster.operators import OperatorGraph
    from controller.cluster.operators.sql import SqlPlanner, SqlTable

_GRAPHS: Final = frozenset({".yaml", ".yml", ".json"})
_STDERR: Final = 2
_SIZE: Final = re.compile(r"\d+:")
_MISSING: Final = re.compile(r"Catalog Error: Table with name (?P<table>\S+) does not exist")


@dataclass(frozen=True, slots=True)
class Target:
    """A graph, the functions of its aggregates by operator, and notes for the reader, one line each.

    `unknown` are operators whose times cannot be known, with the reason.
    """

    graph: OperatorGraph
    aggregates: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


def target_of(
    names: Sequence[str], database: Path | None, tables: Mapping[str, SqlTable], deadline_s: float = 120.0
) -> Target:
    """Return the graph of a statement, a file, or a program's run; several become a pipeline."""
    from controller.acceleration.plans import mixed  # noqa: PLC0415
    from controller.cluster.operators.sql import SqlPlanner  # noqa: PLC0415

    with SqlPlanner(database, tables) as planner:
        parts = [_one(name, planner, deadline_s) for name in names]
    if len(parts) == 1:
        return parts[0]
    graph = mixed(" then ".join(part.graph.name for part in parts), [part.graph for part in parts])
    aggregates = {f"{part.graph.name}/{name}": texts for part in parts for name, texts in part.aggregates.items()}
    return Target(graph, aggregates, tuple(note for part in parts for note in part.notes))


def tables_of(declared: Sequence[str], file: Path | None) -> dict[str, SqlTable]:
    """Return the tables declared in a file and on the command line, which takes precedence."""
    from controller.cluster.operators.sql import load_tables  # noqa: PLC0415

    return ({} if file is None else load_tables(file)) | dict(map(_table, declared))


def _table(text: str) -> tuple[str, SqlTable]:
    """Parse NAME=ROWS:BYTES, or NAME=FILE of a Parquet or CSV file."""
    from controller.apps.cli.probe.trace import declared  # noqa: PLC0415
    from controller.cluster.operators import OperatorError  # noqa: PLC0415
    from controller.cluster.operators.sql import table_of_file  # noqa: PLC0415

    name, _, value = text.partition("=")
    if _SIZE.match(value) and not Path(value).is_file():
        return declared(text)
    if not name or not value:
        raise typer.BadParameter(f"{text!r} is not a table: expected NAME=ROWS:BYTES or NAME=FILE")
    try:
        return name, table_of_file(Path(value))
    except OperatorError as error:
        raise OperatorError(f"table {name}: {error} (expected NAME=ROWS:BYTES or NAME=FILE)") from None


def _one(name: str, planner: SqlPlanner, deadline_s: float) -> Target:
    from controller.cluster.operators import OperatorError, load  # noqa: PLC0415
    from controller.cluster.operators.tracing import trace_target  # noqa: PLC0415

    suffix = Path(name).suffix if "\n" not in name else ""
    if suffix in _GRAPHS and Path(name).is_file():
        return Target(load(Path(name)), {})
    if suffix == ".sql" and len(name.split()) == 1:
        text = _text(Path(name))
        try:
            return _planned(text, planner, Path(name).stem)
        except OperatorError as error:
            raise OperatorError(f"{name}: {error}") from None
    if len(name.split()) != 1:
        return _planned(name, planner, "query")
    traced = trace_target(name, (), deadline_s=deadline_s, output=_STDERR)
    if not traced.graph.operators and traced.problems:
        raise typer.BadParameter(f"{name}: {'; '.join(traced.problems)}")
    return Target(traced.graph, {}, traced.problems)


def _planned(sql: str, planner: SqlPlanner, name: str) -> Target:
    from controller.cluster.operators import OperatorError  # noqa: PLC0415

    try:
        planned = planner.plan(sql, name=name)
    except OperatorError as error:
        if missing := _MISSING.search(str(error)):
            hint = f"give its size or file (--table {missing['table']}=ROWS:BYTES|FILE, --tables FILE) or a --database"
            raise OperatorError(f"no statistics of table {missing['table']}: {hint}") from None
        raise
    return Target(planned.graph, planned.aggregates)


def _text(path: Path) -> str:
    from controller.cluster.operators import OperatorError  # noqa: PLC0415

    try:
        return read_given_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from None
