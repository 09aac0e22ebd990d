"""Tables that a query reads: those of a database, and those that are declared by rows and bytes alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import duckdb

from controller.cluster.operators.errors import OperatorError

_WIDTHS: Final = {
    **dict.fromkeys(("BOOLEAN", "TINYINT", "UTINYINT"), 1),
    **dict.fromkeys(("SMALLINT", "USMALLINT"), 2),
    **dict.fromkeys(("INTEGER", "UINTEGER", "FLOAT", "DATE"), 4),
    **dict.fromkeys(("HUGEINT", "UHUGEINT", "UUID", "INTERVAL", "VARCHAR", "BLOB"), 16),
}
"""Bytes of a value in DuckDB's vectors; texts are their reference, which holds up to 12 bytes of them."""
_LITERALS: Final = {"INTEGER": "BIGINT", "STRING": "VARCHAR", "DECIMAL": "DOUBLE", "FLOAT": "DOUBLE"}
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


def declare(connection: duckdb.DuckDBPyConnection, sql: str, tables: Mapping[str, SqlTable]) -> dict[int, int]:
    """Make views in place of tables that are not here, and return the bytes of a row by the view's rows.

    A view counts that many numbers, so that DuckDB's estimates are those of a table of so many rows; of two tables with
    equally many rows one counts one more, so that they can be told apart in a plan.
    """
    assumed = _assumed_columns(connection, sql, tables)
    widths: dict[int, int] = {}
    for name, table in tables.items():
        if not 1 <= table.rows <= MOST_ROWS or not 0 <= table.nbytes <= MOST_ROWS:
            raise OperatorError(f"table {name}: {table.rows} rows of {table.nbytes} bytes are not possible")
        rows = table.rows
        while rows in widths:
            rows += 1
        columns = {**assumed.get(name, {}), **table.columns}
        widths[rows] = max(table.nbytes // table.rows, 1)
        if table.columns:
            used = [width_of(kind) for column, kind in columns.items() if column.lower() in assumed.get("", {})]
            widths[rows] = min(sum(used) or widths[rows], widths[rows]) if table.nbytes else sum(used) or 8
        chosen = ", ".join(f"CAST(range AS {_type(kind)}) AS {_quoted(column)}" for column, kind in columns.items())
        selected = f"SELECT {chosen or 'range'} FROM range({rows})"  # noqa: S608 - quoted names, checked types, a number
        _run(connection, f"CREATE OR REPLACE TEMP VIEW {_quoted(name)} AS {selected}")
    return widths


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


def _assumed_columns(
    connection: duckdb.DuckDBPyConnection, sql: str, tables: Mapping[str, SqlTable]
) -> dict[str, dict[str, str]]:
    """Return the columns that a query names, by declared table, with a type; under '' all of them, in lower case.

    A column without a table's name is assumed in the only table that has no columns declared, if there is one.
    """
    if not tables:
        return {}
    answer = connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    tree = json.loads(answer[0]) if answer else {}
    if tree.get("error"):
        raise OperatorError(f"SQL: {tree.get('error_message', 'cannot be read')}")
    aliases = {
        (node.get("alias") or node["table_name"]).lower(): node["table_name"]
        for node in _nodes(tree)
        if node.get("type") == "BASE_TABLE"
    }
    open_tables = [name for name, table in tables.items() if not table.columns]
    found: dict[str, dict[str, str]] = {"": {}}
    types = dict(_typed_columns(tree))
    for node in _nodes(tree):
        if node.get("class") != "COLUMN_REF":
            continue
        *owner, column = node["column_names"]
        found[""][column.lower()] = ""
        table = aliases.get(owner[-1].lower()) if owner else open_tables[0] if len(open_tables) == 1 else None
        if table is not None and table in open_tables:
            found.setdefault(table, {})[column] = types.get(column.lower(), "DOUBLE")
    return found


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON of DuckDB's
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from _nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _nodes(value)


def _typed_columns(tree: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Yield columns, in lower case, with the type of the literal that they are compared with."""
    for node in _nodes(tree):
        parts = [part for part in node.values() if isinstance(part, dict)]
        parts += [
            one["expression"] for one in node.get("arguments", ()) if isinstance(one, dict) and "expression" in one
        ]
        names = [part["column_names"][-1].lower() for part in parts if part.get("class") == "COLUMN_REF"]
        for kind in filter(None, map(_literal_type, parts)):
            for name in names:
                yield name, kind


def _literal_type(node: dict[str, Any]) -> str | None:
    if node.get("class") == "CAST":
        named: str | None = node.get("type_expr", {}).get("type_name")
        return named.upper() if named else None
    if node.get("class") == "CONSTANT":
        return _LITERALS.get(node.get("literal", {}).get("kind", ""))
    return None
