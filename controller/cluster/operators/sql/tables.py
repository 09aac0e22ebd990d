"""Tables that a query reads: those of a database, and those that are declared by rows and bytes alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import duckdb

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.sql.references import References

_WIDTHS: Final = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "UTINYINT"), 1),
    **dict.fromkeys(("SMALLINT", "USMALLINT"), 2),
    **dict.fromkeys(("INTEGER", "UINTEGER", "FLOAT", "DATE"), 4),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UUID", "INTERVAL", "VARCHAR", "BLOB"), 16),
}
"""Bytes of a value in DuckDB's vectors; texts are their reference, which holds up to 12 bytes of them."""
_TYPE: Final = re.compile(r"[A-Za-z_]\w*( ?\([\d, ]+\))?")
MOST_ROWS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A table that is not here: how many rows and bytes it has; its columns' types where they matter.

    `columns` are types of DuckDB's by name. Where they are left out, those that the query names are assumed, of the
    types of what they are compared with.
    """

    rows: int
    nbytes: int
    columns: Mapping[str, str] = field(default_factory=dict)


def width_of(column_type: str) -> int:
    """Return how many bytes a value of a type has, 8 for those that are not listed."""
    return _WIDTHS.get(column_type.upper().partition("(")[0], 8)


class Declared:
    """Declared tables as views of a connection, so that DuckDB's estimates are those of tables of so many rows.

    A view counts so many numbers; of two tables with equally many rows one counts one more, so that they can be told
    apart in a plan. Each column is a formula of its own, as conditions on two columns would else exclude each other.
    """

    def __init__(self, tables: Mapping[str, SqlTable]) -> None:
        self.tables = dict(tables)
        self._rows: dict[str, int] = {}
        taken: set[int] = set()
        for name, table in tables.items():
            if not 1 <= table.rows <= MOST_ROWS or not 0 <= table.nbytes <= MOST_ROWS:
                raise OperatorError(f"table {name}: {table.rows} rows of {table.nbytes} bytes are not possible")
            rows = table.rows
            while rows in taken:
                rows += 1
            taken.add(rows)
            self._rows[name] = rows
        self._open = [name for name, table in tables.items() if not table.columns]

    @property
    def has_open(self) -> bool:
        """Whether the columns of a table are not declared."""
        return bool(self._open)

    def declare_closed(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the views of tables whose columns are declared."""
        for name, table in self.tables.items():
            if table.columns:
                self._view(connection, name, table.columns)

    def declare_open(self, connection: duckdb.DuckDBPyConnection, references: References) -> frozenset[str]:
        """Make the views of tables whose columns are those that a statement names, of assumed types; return these.

        A column without a table's name is assumed in the only such table, if there is but one.
        """
        columns: dict[str, dict[str, str]] = {name: {} for name in self._open}
        for owner, column in sorted(references.columns):
            table = references.aliases.get(owner) if owner else self._open[0] if len(self._open) == 1 else None
            if table in columns:
                columns[table][column] = references.types.get(column.lower(), "DOUBLE")
        for name in self._open:
            self._view(connection, name, columns[name])
        return frozenset(column for named in columns.values() for column in named)

    def row_bytes(self, references: References) -> dict[int, int]:
        """Return the bytes of a row that a statement reads of each table, by the rows of its view."""
        named = {column.lower() for _, column in references.columns}
        found: dict[int, int] = {}
        for name, table in self.tables.items():
            width = max(table.nbytes // table.rows, 1)
            if table.columns:
                chosen = table.columns.items()
                used = sum(width_of(kind) for column, kind in chosen if references.has_star or column.lower() in named)
                width = min(used or width, width) if table.nbytes else used or 8
            found[self._rows[name]] = width
        return found

    def _view(self, connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str]) -> None:
        chosen = ", ".join(
            f"CAST(hash(range, {at}) AS {_type(kind)}) AS {_quoted(column)}"
            for at, (column, kind) in enumerate(columns.items())
        )
        selected = f"SELECT {chosen or 'range'} FROM range({self._rows[name]})"  # noqa: S608 - quoted names, checked types, a number
        _run(connection, f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {selected}")


def _run(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        connection.execute(statement)
    except duckdb.Error as error:
        raise OperatorError(one_line(error)) from None


def one_line(error: duckdb.Error) -> str:
    """Return an error of DuckDB's as one line."""
    return " ".join(str(error).partition("\n")[0].split())


def _type(kind: str) -> str:
    if not _TYPE.fullmatch(kind):
        raise OperatorError(f"{kind!r} is no type of a column")
    return kind


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
