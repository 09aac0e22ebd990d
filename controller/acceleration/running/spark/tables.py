"""Tables for Spark: Parquet with columns c0, c1, ... in the types that Spark SQL has, written by DuckDB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.statements.literals import quoted
from controller.acceleration.running.statements.splitting import LOSSLESS, columns_of

_KEPT: Final = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP",
})  # fmt: skip
_WIDENED: Final = {
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INTEGER",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20, 0)",
    "HUGEINT": "DECIMAL(38, 0)",
}
_ROWS: Final = 1 << 17
"""Rows of a group: what one task of Spark reads at least."""


def write_tables(tables: Mapping[str, pa.Table | Path], folder: Path, only: Sequence[str] = ()) -> dict[str, Path]:
    """Write tables, or Parquet or CSV files, into a folder for Spark; return each one's file.

    Columns of other types are left out: a statement that reads one has been refused. `only` names the tables that are
    written, by default all. RunError names a table that cannot be read or written.
    """
    files = {}
    for number, (name, table) in enumerate(tables.items()):
        if only and name not in only:
            continue
        files[name] = folder / f"table{number}.parquet"
        with duckdb.connect(":memory:") as connection:
            try:
                _write(connection, table, files[name])
            except (duckdb.Error, OSError) as error:
                raise RunError(f"table {name}: {str(error).splitlines()[0]}") from None
    return files


def _write(connection: duckdb.DuckDBPyConnection, table: pa.Table | Path, file: Path) -> None:
    connection.execute(LOSSLESS)
    if isinstance(table, Path):
        connection.execute(f"CREATE VIEW given AS SELECT * FROM {_text(table)}")
    else:
        connection.register("given", table)
    kinds = columns_of(connection, "SELECT * FROM given")
    columns = ", ".join(
        f"CAST({_finite(name, kind)} AS {_WIDENED.get(kind, kind)}) AS c{index}"
        for index, (name, kind) in enumerate(kinds)
        if kind in _KEPT or kind in _WIDENED or kind.startswith("DECIMAL(")
    )
    # A table without such a column still has rows to count.
    selected = columns or "true AS none"
    connection.execute(f"COPY (SELECT {selected} FROM given) TO {_text(file)} (FORMAT parquet, ROW_GROUP_SIZE {_ROWS})")


def _finite(name: str, kind: str) -> str:
    """Return a column; an infinite date, which Spark does not have, ends the writing."""
    if kind not in {"DATE", "TIMESTAMP"}:
        return quoted(name)
    words = f"column {name}: an infinite {kind.lower()} cannot be run on Spark".replace("'", "''")
    return f"CASE WHEN isinf({quoted(name)}) THEN error('{words}') ELSE {quoted(name)} END"


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
