"""Tables that a query reads: those of a database, and those declared by rows and bytes only."""

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
"""Bytes of a value in DuckDB's vectors; strings are references that hold up to 12 bytes inline."""
# 3000000000 does not fit an INTEGER, so DuckDB reads it as a BIGINT.
_LITERALS: Final = {"INTEGER": "0", "BIGINT": "3000000000", "DOUBLE": "1e0", "VARCHAR": "''", "BOOLEAN": "true"}
_DECIMAL: Final = re.compile(r"DECIMAL ?\( ?(\d{1,2}) ?, ?(\d{1,2}) ?\)", re.IGNORECASE)
_TYPE: Final = re.compile(r"[A-Za-z_]\w*( ?\([\d, ]+\))?")
MOST_ROWS: Final = 1 << 53


@dataclass(frozen=True, slots=True)
class SqlTable:
    """A declared table without data: its rows and bytes; its column types where they matter.

    `columns` are DuckDB types by name. If omitted, the columns that the query names are assumed, with the types of the
    literals that they are compared with. `widths` are bytes of a column's mean value where its type does not tell.
    """

    rows: int
    nbytes: int
    columns: Mapping[str, str] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)


def width_of(column_type: str) -> int:
    """Return the size of a type's values in bytes, 8 for unlisted types."""
    return _WIDTHS.get(column_type.upper().partition("(")[0], 8)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a declared table: the bytes that a statement reads of it, and of each column, 0 for unread ones."""

    nbytes: int
    columns: tuple[tuple[str, int], ...]


class Declared:
    """Declared tables as views of a connection, so that DuckDB makes estimates as for tables of that size.

    A view repeats one row; if two tables have equally many rows, one gets an extra row, so that a plan can tell them
    apart. DuckDB knows nothing of the values, so that conditions on two columns do not exclude each other.
    """

    def __init__(self, tables: Mapping[str, SqlTable]) -> None:
        self.tables = dict(tables)
        self._rows: dict[str, int] = {}
        self._columns = {name: _widths(table.columns, table.widths) for name, table in tables.items()}
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
        """True if any table has undeclared columns."""
        return bool(self._open)

    def declare_closed(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the views of tables whose columns are declared."""
        for name, table in self.tables.items():
            if table.columns:
                self._view(connection, name, table.columns)

    def declare_open(self, connection: duckdb.DuckDBPyConnection, references: References) -> frozenset[str]:
        """Create the views of tables without declared columns from a statement's references; return the columns.

        Their types are assumed. An unqualified column is assigned to the only such table, if there is just one.
        """
        columns: dict[str, dict[str, str]] = {name: {} for name in self._open}
        for owner, column in sorted(references.columns):
            table = references.aliases.get(owner) if owner else self._open[0] if len(self._open) == 1 else None
            if table in columns:
                columns[table][column] = references.types.get(column.lower(), "DOUBLE")
        for name in self._open:
            self._columns[name] = _widths(columns[name], {})
            self._view(connection, name, columns[name])
        return frozenset(column for named in columns.values() for column in named)

    def rows(self, references: References) -> dict[int, Row]:
        """Return each table's row as a statement reads it, keyed by the number of rows in its view."""
        named = {column.lower() for _, column in references.columns}
        by_count: dict[int, Row] = {}
        for name, table in self.tables.items():
            columns = tuple(
                (column, width if references.has_star or key in named else 0)
                for column, key, width in self._columns[name]
            )
            width = max(table.nbytes // table.rows, 1)
            if table.columns:
                used = sum(nbytes for _, nbytes in columns)
                width = min(used or width, width) if table.nbytes else used or 8
            by_count[self._rows[name]] = Row(width, columns)
        return by_count

    def _view(self, connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, str]) -> None:
        values, names = (
            ", ".join(_value(connection, kind) for kind in columns.values()),
            ", ".join(map(quoted, columns)),
        )
        rows = f"repeat_row({values or 0}, num_rows={self._rows[name]})"
        _run(connection, f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS FROM {rows} AS row({names or 'range'})")


def _widths(columns: Mapping[str, str], widths: Mapping[str, int]) -> tuple[tuple[str, str, int], ...]:
    """Return columns with their lower-case names and the given bytes, else those of their types."""
    return tuple((column, column.lower(), widths.get(column) or width_of(kind)) for column, kind in columns.items())


def _run(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    try:
        connection.execute(statement)
    except duckdb.Error as error:
        raise OperatorError(one_line(error)) from None


def one_line(error: duckdb.Error) -> str:
    """Return a DuckDB error as one line."""
    return " ".join(str(error).partition("\n")[0].split())


def _value(connection: duckdb.DuckDBPyConnection, kind: str) -> str:
    """Return some value of a type; a literal of that type binds faster than a cast."""
    if not _TYPE.fullmatch(kind):
        kind = _nested(connection, kind)
    # DuckDB's decimals have 38 digits at most.
    if (decimal := _DECIMAL.fullmatch(kind)) and 1 <= (scale := int(decimal[2])) < (width := int(decimal[1])) <= 38:
        return f"{'1' * (width - scale)}.{'1' * scale}"
    return _LITERALS.get(kind.upper(), f"CAST(NULL AS {kind})")


def _nested(connection: duckdb.DuckDBPyConnection, kind: str) -> str:
    """Return a type of several words, parts or labels as DuckDB writes it; raise OperatorError if it is none."""
    try:
        return str(connection.type(kind))
    except duckdb.Error:
        raise OperatorError(f"{kind!r} is not a column type") from None


def quoted(name: str) -> str:
    """Return a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
