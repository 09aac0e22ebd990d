"""Operator graphs of SQL: one DuckDB connection that plans statements over the same tables, and executes none."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb

from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.sql.graphs import Tables, operators_of_plan, rows_of_plan
from controller.cluster.operators.sql.references import References, references_of, references_of_words
from controller.cluster.operators.sql.statements import planned_text
from controller.cluster.operators.sql.tables import Declared, SqlTable, one_line, width_of
from controller.cluster.operators.values import OperatorGraph


def graph_of_sql(
    sql: str,
    database: duckdb.DuckDBPyConnection | Path | str | None = None,
    tables: Mapping[str, SqlTable] | None = None,
    *,
    name: str = "query",
) -> OperatorGraph:
    """Return the operators of a query as DuckDB would run it, with its estimated row counts; nothing is executed.

    `database` is an open connection, or a file to open read-only; `tables` are those that are not in it. Filters
    applied by a scan are separate operators. Raises OperatorError with DuckDB's message for SQL that it refuses.
    """
    with SqlPlanner(database, tables) as planner:
        return planner.graph(sql, name=name)


@dataclass(frozen=True, slots=True)
class Planned:
    """A statement's graph, and DuckDB's planning time in seconds.

    `aggregates` are the functions of operators that group, by name, in DuckDB's notation: "sum(#1)", "count_star()".
    """

    graph: OperatorGraph
    duckdb_s: float
    aggregates: Mapping[str, tuple[str, ...]]


class SqlPlanner:
    """Plans statements over tables of a database and declared ones, like `graph_of_sql`; a context manager.

    Tables and their columns are read once: statements after the first need only be planned. Not thread-safe.
    """

    def __init__(
        self,
        database: duckdb.DuckDBPyConnection | Path | str | None = None,
        tables: Mapping[str, SqlTable] | None = None,
    ) -> None:
        self._connected = _connected(database)
        self._connection = self._connected.__enter__()
        try:
            self._declared = Declared(tables or {})
            with _errors_in_one_line():
                self._declared.declare_closed(self._connection)
                self._rows = _rows_of_tables(self._connection)
                self._widths = _widths_of_columns(self._connection)
        # `__exit__` does not run where the constructor fails.
        except BaseException:
            self.close()
            raise
        self._columns = frozenset(column for _, column in self._widths)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection unless the caller provided it."""
        self._connected.__exit__(None, None, None)

    def graph(self, sql: str, *, name: str = "query") -> OperatorGraph:
        """Return the operators of a statement; raise OperatorError with DuckDB's message."""
        return self.plan(sql, name=name).graph

    def plan(self, sql: str, *, name: str = "query") -> Planned:
        """Return the operators of a statement and its planning time; raise OperatorError like `graph`."""
        with _errors_in_one_line():
            query = planned_text(self._connection, sql, has_data=not self._declared.tables)
            references = self._read(query)
            assumed = self._declared.declare_open(self._connection, references)
            began_s = time.perf_counter()
            rows = self._connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
            duckdb_s = time.perf_counter() - began_s
        plans: list[dict[str, Any]] = json.loads(rows[0][1])
        tables = Tables(self._rows, self._widths, self._declared.rows(references), self._columns | assumed)
        graph, aggregates = operators_of_plan(plans, tables, name)
        return Planned(graph, duckdb_s, aggregates)

    def rows_of(self, sql: str) -> int:
        """Return how many rows DuckDB expects a statement to yield; raise OperatorError with its message."""
        with _errors_in_one_line():
            query = planned_text(self._connection, sql, has_data=not self._declared.tables)
            self._declared.declare_open(self._connection, self._read(query))
            rows = self._connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()
        (plan,) = json.loads(rows[0][1])
        return rows_of_plan(plan)

    def _read(self, query: str) -> References:
        """Return a query's references: none if no table is declared.

        If all columns are declared, and no star selects them, the words in the text suffice.
        """
        if not self._declared.tables:
            return References()
        if not self._declared.has_open and (references := references_of_words(query)) is not None:
            return references
        answer = self._connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()
        return references_of(answer[0] if answer else "{}")


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise OperatorError(f"SQL: {one_line(error)}") from None


@contextmanager
def _connected(database: duckdb.DuckDBPyConnection | Path | str | None) -> Iterator[duckdb.DuckDBPyConnection]:
    if isinstance(database, duckdb.DuckDBPyConnection):
        with database.cursor() as cursor:
            yield cursor
        return
    if database is not None and not Path(database).is_file():
        raise OperatorError(f"{database}: no such database")
    try:
        connection = duckdb.connect(str(database) if database else ":memory:", read_only=database is not None)
    except duckdb.Error as error:
        raise OperatorError(f"{database}: {one_line(error)}") from None
    with connection:
        yield connection


def _rows_of_tables(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    rows = connection.execute(
        "SELECT database_name || '.' || schema_name || '.' || table_name, estimated_size FROM duckdb_tables()"
    ).fetchall()
    return {name: size or 0 for name, size in rows}


def _widths_of_columns(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    columns = connection.execute(
        "SELECT database_name || '.' || schema_name || '.' || table_name, column_name, data_type FROM duckdb_columns()"
    ).fetchall()
    return {(table, column): width_of(kind) for table, column, kind in columns}
