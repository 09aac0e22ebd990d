"""Plans a SQL task when it is submitted: how it is split, its operators, and the sizes of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import RunError, StatementError
from controller.acceleration.running.statements.literals import quoted
from controller.acceleration.running.statements.splitting import LOSSLESS, Schema
from controller.acceleration.running.steps.planning import MOST_SAMPLED, CountedSizes, EstimatedSizes, plan_statement
from controller.acceleration.running.values import Split
from controller.cluster.operators import OperatorError, OperatorGraph
from controller.cluster.operators.sql import SqlPlanner, SqlTable, table_of_file
from controller.cluster.operators.sql.tables import width_of

MOST_READ_ROWS: Final = 5_000_000
"""Rows of a table that is read whole for planning; with a larger one next to the sharded table, sizes are estimates."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A table of a task: its file, and its rows and columns if they were stated or read."""

    file: Path
    rows: int | None = None
    columns: Mapping[str, str] | None = None

    @property
    def is_stated(self) -> bool:
        """True if it can be planned without its file."""
        return self.rows is not None and bool(self.columns)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task's operators, and its tables as they were found.

    `sharded` is the table whose rows units share, '' if the statement is not split, with the reason in `why`. `basis`
    says what sizes are from.
    """

    graph: OperatorGraph
    tables: Mapping[str, SqlTable]
    sharded: str
    basis: str
    why: str = ""


def plan_task(sql: str, files: Mapping[str, TableFile], name: str) -> TaskPlan:
    """Return the plan of one SELECT over tables in files.

    A file that is not here needs stated rows and columns. Raise RunError for a table that is neither, StatementError or
    OperatorError for SQL that DuckDB refuses.
    """
    tables = {label: _table(label, file) for label, file in files.items()}
    empty = {label: _empty(label, table) for label, table in tables.items()}
    sizes = {label: bytes_of(table) for label, table in tables.items()}
    try:
        with Schema(empty, sizes) as schema:
            split = schema.split(sql)
        return _planned(split, tables, files, name)
    except StatementError as error:
        # Also tells a statement that is wrong from one that is not split.
        with SqlPlanner(None, tables) as planner:
            graph = planner.graph(sql, name=name)
        return TaskPlan(graph, tables, "", _ESTIMATED, str(error).removeprefix("SQL: "))


_ESTIMATED: Final = "DuckDB's estimates"


def _planned(split: Split, tables: Mapping[str, SqlTable], files: Mapping[str, TableFile], name: str) -> TaskPlan:
    if all(file.file.is_file() for file in files.values()) and all(
        table.rows <= MOST_READ_ROWS for label, table in tables.items() if label != split.sharded
    ):
        factor = max(tables[split.sharded].rows / MOST_SAMPLED, 1.0)
        data = {label: _rows(label, file.file, factor if label == split.sharded else 1.0)
                for label, file in files.items()}  # fmt: skip
        kept = max(data[split.sharded].num_rows, 1)
        factor = tables[split.sharded].rows / kept
        with CountedSizes(data, split.sharded, factor) as counted:
            graph = plan_statement(split, counted, name).graph
        basis = "all rows" if factor == 1 else f"a sample of {kept} of {tables[split.sharded].rows} rows"
        return TaskPlan(graph, tables, split.sharded, basis)
    with EstimatedSizes(tables) as estimated:
        return TaskPlan(plan_statement(split, estimated, name).graph, tables, split.sharded, _ESTIMATED)


def bytes_of(table: SqlTable) -> int:
    """Return the size of a table in DuckDB's vectors."""
    row = sum(table.widths.get(column, width_of(kind)) for column, kind in table.columns.items())
    return table.rows * max(row, 1)


def _table(label: str, file: TableFile) -> SqlTable:
    if file.is_stated:
        return SqlTable(file.rows or 1, 0, file.columns or {})
    if not file.file.is_file():
        raise RunError(f"table {label}: {file.file} is not on this machine: state its `rows` and `columns`")
    try:
        return table_of_file(file.file)
    except OperatorError as error:
        raise RunError(f"table {label}: {error}") from None


def _empty(label: str, table: SqlTable) -> pa.Table:
    with duckdb.connect(":memory:") as connection:
        connection.execute(LOSSLESS)
        columns = ", ".join(f"{quoted(column)} {kind}" for column, kind in table.columns.items())
        try:
            connection.execute(f"CREATE TABLE t ({columns})")
        except duckdb.Error as error:
            raise RunError(f"table {label}: {str(error).splitlines()[0]}") from None
        return connection.sql("FROM t").to_arrow_table()


def _rows(label: str, file: Path, factor: float) -> pa.Table:
    """Return a table's rows, or a random one for `factor`; with a fixed seed, so that a plan can be repeated."""
    sample = f" USING SAMPLE {100 / factor} PERCENT (bernoulli, 1)" if factor > 1 else ""
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(LOSSLESS)
            return connection.from_query(f"SELECT * FROM query_table($1){sample}", params=[str(file)]).to_arrow_table()
    except duckdb.Error as error:
        raise RunError(f"table {label}: {file}: {str(error).splitlines()[0]}") from None
