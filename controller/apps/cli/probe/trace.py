"""`millrace probe trace`: operators of a program, query or graph, and matching kernels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from controller.apps.cli.cluster.api import Address
from controller.apps.cli.probe.library import library_of
from controller.apps.cli.shared.amounts import in_seconds
from controller.apps.cli.shared.common import slow
from controller.apps.cli.shared.output import Format, FormatOption, show
from dataplane.given import read_given_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from controller.cluster.operators import OperatorGraph
    from controller.cluster.operators.sql import SqlTable
    from controller.cluster.operators.tracing import Traced

_COLUMNS: Final = ("operator", "computes", "executions", "seconds", "reads", "place")
_MATCH_COLUMNS: Final = ("operator", "kernel", "similarity", "sizes", "why")
_STDERR: Final = 2
_TABLE: Final = re.compile(r"(?P<name>\w+)=(?P<rows>\d+):(?P<nbytes>.+)", re.ASCII)


@slow("tracing")
def trace(  # noqa: PLR0917 - a command line's options
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="x.py, x.py:function, module:function, x.sql, or a graph in YAML or JSON."
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Program arguments.")] = None,
    match: Annotated[
        bool, typer.Option("--match", "-m", help="Show the kernel that each operator matches, and why.")
    ] = False,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Minimum similarity of a matching kernel.")] = 0.6,
    category: Annotated[str, typer.Option(help="Class of the task: hpc, ai, sql, ...")] = "",
    deadline: Annotated[float, typer.Option(parser=in_seconds(0.1), help="Time limit of a program.")] = 120.0,
    database: Annotated[Path | None, typer.Option(metavar="FILE", help="DuckDB file of the query.")] = None,
    table: Annotated[
        list[str] | None, typer.Option(metavar="NAME=ROWS:BYTES", help="Size of a missing table of a query.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the graph as YAML or .json.")
    ] = None,
    address: Address = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run a program once, traced, and show its operators with their sizes, counts and inputs.

    Its output goes to stderr. A query is planned by DuckDB, not run. Exits 1 if the trace is incomplete.
    """
    traced = _traced(target, arguments or (), category, deadline, database, table or ())
    for problem in traced.problems:
        typer.echo(f"{target}: {problem}", err=True)
    if out is not None:
        _write(out, traced.graph)
    if traced.graph.operators and match:
        _show_matches(traced.graph, address, threshold, form)
    elif traced.graph.operators:
        _show_operators(traced, form)
    if traced.problems:
        raise typer.Exit(1)


def _traced(  # noqa: PLR0917 - what the command line says
    target: str,
    arguments: Sequence[str],
    category: str,
    deadline_s: float,
    database: Path | None,
    tables: Sequence[str],
) -> Traced:
    from dataclasses import replace  # noqa: PLC0415

    from controller.cluster.operators import load  # noqa: PLC0415
    from controller.cluster.operators.tracing import Traced, trace_target  # noqa: PLC0415

    suffix = Path(target).suffix
    if suffix not in {".sql", ".yaml", ".yml", ".json"}:
        return trace_target(target, arguments, category=category, deadline_s=deadline_s, output=_STDERR)
    if arguments:
        raise typer.BadParameter(f"{target} takes no arguments: {' '.join(arguments)}")
    graph = _graph_of_sql(Path(target), database, tables) if suffix == ".sql" else load(Path(target))
    return Traced(replace(graph, category=category or graph.category), 0.0)


def _graph_of_sql(path: Path, database: Path | None, tables: Sequence[str]) -> OperatorGraph:
    from controller.cluster.operators import OperatorError  # noqa: PLC0415
    from controller.cluster.operators.sql import graph_of_sql  # noqa: PLC0415

    try:
        text = read_given_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise OperatorError(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from None
    return graph_of_sql(text, database, dict(map(declared, tables)), name=path.stem)


def declared(text: str) -> tuple[str, SqlTable]:
    """Parse NAME=ROWS:BYTES, bytes also as `2.4GB`; raise typer.BadParameter for anything else."""
    from controller.cluster.operators.sql import SqlTable  # noqa: PLC0415
    from dataplane.topology.units import parse_data_bytes  # noqa: PLC0415

    if (match := _TABLE.fullmatch(text)) is None:
        raise typer.BadParameter(f"{text!r} is not a table: expected NAME=ROWS:BYTES")
    nbytes = match["nbytes"]
    try:
        return match["name"], SqlTable(
            int(match["rows"]), int(nbytes) if nbytes.isdecimal() else parse_data_bytes(nbytes)
        )
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a table: {error}") from None


def _show_operators(traced: Traced, form: Format) -> None:
    graph = traced.graph
    rows = []
    for operator in graph.operators:
        seconds = traced.seconds.get(operator.name)
        reads = " ".join(flow.src for flow in graph.into[operator.name])
        rows.append(
            (
                operator.name,
                operator.signature,
                operator.executions,
                None if seconds is None else round(seconds, 6),
                reads,
                traced.places.get(operator.name, ""),
            )
        )
    show(_COLUMNS, rows, form)
    if form is Format.TABLE and traced.seconds:
        typer.echo(f"{graph.name}: {traced.run_time_s:.3g} s, {traced.share:.0%} of it in these operators")


def _show_matches(graph: OperatorGraph, address: str | None, threshold: float, form: Format) -> None:
    from controller.probing.matching import match  # noqa: PLC0415

    rows = []
    for matched in match(graph, library_of(address).kernels(), threshold=threshold):
        sizes = " ".join(f"{name}={size}" for name, size in matched.sizes)
        kernel = "-" if matched.kernel is None else f"{matched.kernel.identifier} v{matched.kernel.version}"
        rows.append((matched.operator, kernel, round(matched.similarity, 2), sizes, matched.reason))
    show(_MATCH_COLUMNS, rows, form)


def _write(path: Path, graph: OperatorGraph) -> None:
    from controller.cluster.operators import OperatorError, dumps  # noqa: PLC0415

    try:
        path.write_text(dumps(graph, as_json=path.suffix == ".json"), encoding="utf-8")
    except OSError as error:
        raise OperatorError(f"{path}: {error.strerror}") from None
