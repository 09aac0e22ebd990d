"""Rows as a table for people, as CSV or as JSON for programs."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.markup import escape
from rich.table import Table

from controller.common.console import plain_or_terminal
from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Cells = Sequence[object]
TABLE_ROWS: Final = 1000
"""Maximum number of rows of a table, which is laid out as a whole."""
_SIX_DIGITS: Final = 999_999.5
"""From here on, six digits no longer reach the decimal point."""
_ALL_DIGITS: Final = 1e15
"""From here on, a float's digits no longer do."""
_FRAME_WIDTH: Final = 3
"""Width of a column beyond its text."""


class Format(StrEnum):
    """Format of rows."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", "-f", help="A table, CSV with a header, or a JSON array.")]


def _table_or_json(form: Format) -> Format:
    if form is Format.CSV:
        raise typer.BadParameter("not a list of rows: use table or json")
    return form


OneFormat = Annotated[
    Format, typer.Option("--format", "-f", callback=_table_or_json, help="A table, or one JSON object, times in ns.")
]
"""Format option of commands that show a single object rather than rows."""
LineFormat = Annotated[
    Format, typer.Option("--format", "-f", help="Text lines, CSV with a header, or one JSON object per line.")
]
"""Format option of commands that keep writing."""
AsJson = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def show(columns: Sequence[str], rows: Iterable[Cells], form: Format) -> None:
    """Print rows on stdout, as they come; a table ends after `TABLE_ROWS`, with a note on stderr.

    If the headings alone are too wide, each row is printed as a line per column instead.
    """
    match form:
        case Format.CSV:
            for line in _csv_lines(columns, rows):
                typer.echo(line, nl=False)
        case Format.JSON:
            _show_json(columns, rows)
        case Format.TABLE:
            _show_table(columns, rows)


def show_one(fields: Mapping[str, object]) -> None:
    """Print one object on stdout as JSON."""
    typer.echo(_json_object(list(fields), list(fields.values())))


def flat(value: DataclassInstance) -> dict[str, object]:
    """Return a value's fields as columns; nested values are expanded in place."""
    columns: dict[str, object] = {}
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            columns.update(flat(part))
        else:
            columns[field.name] = part
    return columns


def show_values(values: Sequence[DataclassInstance], kind: type[DataclassInstance], form: Format) -> None:
    """Print values of a kind, a row each, with their fields as columns."""
    rows = [flat(value) for value in values]
    columns = list(rows[0]) if rows else [field.name for field in dataclasses.fields(kind)]
    show(columns, (list(row.values()) for row in rows), form)


def utc(time_ns: int) -> datetime:
    """Return a time in nanoseconds since 1970 as cells show it."""
    return datetime.fromtimestamp(time_ns / NS_PER_S, UTC)


def table_of(columns: Sequence[str], rows: Iterable[Cells], title: str | None = None) -> Table:
    """Return rows as a table for people."""
    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*(escape(_cell_text(cell)) for cell in row))
    return table


def line_of(columns: Sequence[str], cells: Cells, form: Format) -> str:
    """Return a row as a line: separate words, CSV, or a JSON object."""
    match form:
        case Format.CSV:
            return next(_csv_lines(cells, ())).removesuffix("\n")
        case Format.JSON:
            return _json_object(columns, cells)
        case Format.TABLE:
            return "  ".join(_cell_text(cell) for cell in cells)


def _show_table(columns: Sequence[str], rows: Iterable[Cells]) -> None:
    remaining, console = iter(rows), plain_or_terminal()
    shown = islice(remaining, TABLE_ROWS)
    is_wide = sum(len(column) + _FRAME_WIDTH for column in columns) > console.width
    console.print(_upright(columns, shown) if is_wide else table_of(columns, shown))
    if next(remaining, None) is not None:
        typer.echo(f"only the first {TABLE_ROWS} rows are shown; use --format csv or json for all", err=True)


def _upright(columns: Sequence[str], rows: Iterable[Cells]) -> Table:
    table = Table("column", "value")
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            table.add_row(escape(column), escape(_cell_text(cell)))
        table.add_section()
    return table


def _show_json(columns: Sequence[str], rows: Iterable[Cells]) -> None:
    before = "["
    # Written row by row, so that any number of rows fits into memory.
    for row in rows:
        typer.echo(before + "\n" + _json_object(columns, row), nl=False)
        before = ","
    typer.echo("[]" if before == "[" else "\n]")


def _json_object(columns: Sequence[str], cells: Cells) -> str:
    fields = {name: _for_json(cell) for name, cell in zip(columns, cells, strict=True)}
    return json.dumps(fields, ensure_ascii=False)


def _csv_lines(header: Cells, rows: Iterable[Cells]) -> Iterator[str]:
    for row in chain((header,), rows):
        # csv writes to files only: one for each row keeps rows streaming.
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow([_for_csv(cell) for cell in row])
        yield line.getvalue()


def _for_json(cell: object) -> object:
    match cell:
        case list() | tuple():
            return [_for_json(part) for part in cell]
        case dict():
            return {str(name): _for_json(part) for name, part in cell.items()}
        case Decimal() if cell.is_finite() and cell == cell.to_integral_value():
            return int(cell)
        case float() | Decimal():
            number = float(cell)
            # JSON has neither NaN nor infinity.
            return number if math.isfinite(number) else None
        case None | bool() | int() | str():
            return cell
        case _:
            return _text(cell)


def _for_csv(cell: object) -> object:
    match cell:
        case None:
            return ""
        case list() | tuple() | dict():
            return json.dumps(_for_json(cell), ensure_ascii=False)
        case _:
            return _text(cell)


def number_text(number: float) -> str:
    """Return a number for people: six digits, or all before the point of a larger one, never rounded to thousands."""
    return f"{number:.15g}" if _SIX_DIGITS <= abs(number) < _ALL_DIGITS else f"{number:.6g}"


def _cell_text(cell: object) -> str:
    match cell:
        case None:
            return ""
        case float():
            return number_text(cell)
        case datetime():
            return cell.isoformat(" ", "milliseconds").removesuffix("+00:00")
        case list() | tuple():
            return " ".join(_cell_text(part) for part in cell)
        case dict():
            return " ".join(f"{name}={_cell_text(part)}" for name, part in cell.items())
        case _:
            return str(cell)


def _text(cell: object) -> str:
    return cell.isoformat() if isinstance(cell, datetime) else str(cell)
