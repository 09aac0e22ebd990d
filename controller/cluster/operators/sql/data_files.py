"""Tables in Parquet and CSV files: their rows, columns and the length of their texts, without loading them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import duckdb

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.sql.tables import SqlTable, one_line, quoted, width_of

_PARQUET: Final = ".parquet"
_LENGTHS: Final = {"VARCHAR": "strlen", "BLOB": "octet_length"}
"""Functions of a text's bytes, by its type."""
_INLINE_BYTES: Final = 12
"""DuckDB holds a text of this length within its reference to it."""
_PREFIX_BYTES: Final = 4
"""Each text of a Parquet file follows its length."""


def table_of_file(path: Path) -> SqlTable:
    """Return the table that a file holds, as DuckDB reads it: Parquet by its metadata alone, others in one pass.

    Raise OperatorError for a file that is missing, unreadable, or without rows.
    """
    if not path.is_file():
        raise OperatorError(f"no such file: {path}")
    try:
        with duckdb.connect(":memory:") as connection:
            described = connection.execute("DESCRIBE FROM query_table($1)", [str(path)]).fetchall()
            columns = {str(name): str(kind) for name, kind, *_ in described}
            texts = {name: _LENGTHS[kind] for name, kind in columns.items() if kind in _LENGTHS}
            measure = _by_metadata if path.suffix == _PARQUET else _in_one_pass
            rows, lengths = measure(connection, str(path), texts)
    except duckdb.Error as error:
        raise OperatorError(f"{path}: {one_line(error)}") from None
    if not rows:
        raise OperatorError(f"{path}: no rows, so there are no statistics to plan by")
    widths = {
        name: width_of(columns[name]) + round(length) for name, length in lengths.items() if length > _INLINE_BYTES
    }
    return SqlTable(rows, 0, columns, widths)


def _by_metadata(
    connection: duckdb.DuckDBPyConnection, path: str, texts: Mapping[str, str]
) -> tuple[int, dict[str, float]]:
    """Return rows, and bytes of a mean text by column; those that a dictionary shortens in the file look shorter."""
    ((rows,),) = connection.execute("SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata($1)", [path]).fetchall()
    sizes = connection.execute(
        "SELECT path_in_schema, sum(total_uncompressed_size)::BIGINT FROM parquet_metadata($1) GROUP BY ALL", [path]
    ).fetchall()
    return rows, {name: nbytes / max(rows, 1) - _PREFIX_BYTES for name, nbytes in sizes if name in texts}


def _in_one_pass(
    connection: duckdb.DuckDBPyConnection, path: str, texts: Mapping[str, str]
) -> tuple[int, dict[str, float]]:
    means = "".join(f", avg({length}({quoted(name)}))" for name, length in texts.items())
    counting = f"SELECT count(*){means} FROM query_table($1)"  # noqa: S608 - names are quoted
    ((rows, *lengths),) = connection.execute(counting, [path]).fetchall()
    return rows, {name: length or 0.0 for name, length in zip(texts, lengths, strict=True)}
