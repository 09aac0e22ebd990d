"""Views of DuckDB over a table's files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from collectors.history.schema import Table
from collectors.history.sketches import define_functions

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "python_enable_replacements": "false",
    "temp_directory": "",
}


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database in memory with our functions, no Python variables, no temporary files; times are UTC."""
    connection = duckdb.connect(":memory:", config=_CONFIG)
    connection.execute("SET TimeZone='UTC'")
    define_functions(connection)
    return connection


def define_view(connection: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[Path], newest: pa.Table) -> None:
    """Define a view of a table's name over some files and the newest rows; columns that a file lacks are null there."""
    connection.register(f"_{table.name}", newest)
    older = f" UNION ALL BY NAME FROM read_parquet({list_of(paths)}, union_by_name=true)" if paths else ""
    connection.execute(f"CREATE VIEW {table.name} AS FROM _{table.name}{older}")


def list_of(paths: Sequence[Path]) -> str:
    """Return paths as a list in SQL."""
    quoted = (str(path.absolute()).replace("'", "''") for path in paths)
    return "[" + ", ".join(f"'{path}'" for path in quoted) + "]"
