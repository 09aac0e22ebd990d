"""Translates a SELECT that DuckDB binds into Spark SQL of the same meaning, or refuses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import duckdb
import msgspec
import pyarrow as pa

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.expressions import Expressions
from controller.acceleration.running.spark.rendering import SparkRenderer
from controller.acceleration.running.statements.bound import bound_plan
from controller.acceleration.running.statements.splitting import Schema, columns_of

Table: TypeAlias = pa.Table | pa.Schema
"""A table whose names and types matter, or only these."""


class SparkStatement(msgspec.Struct, frozen=True):
    """A statement for Spark: `sql` reads the views input0, input1, ... of `tables`, with columns c0, c1, ...

    `columns` are the names and DuckDB types of the result.
    """

    sql: str
    tables: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]


def spark_statement(sql: str, tables: Mapping[str, Table]) -> SparkStatement:
    """Return a SELECT over these tables as Spark SQL; raise StatementError if it is not whitelisted."""
    empty = {name: table.empty_table() if isinstance(table, pa.Schema) else table for name, table in tables.items()}
    with Schema(empty) as schema:
        return translated(schema.connection, sql)


def translated(connection: duckdb.DuckDBPyConnection, sql: str) -> SparkStatement:
    """Return a SELECT over a connection's tables as Spark SQL."""
    plan = bound_plan(connection, sql)
    renderer = SparkRenderer(Expressions(connection))
    relation = renderer.relation(plan)
    columns = tuple(columns_of(connection, sql))
    if len(columns) != len(relation.columns):
        raise StatementError("SQL: this statement cannot be run on Spark")
    text = relation.sql
    return SparkStatement(text, tuple(renderer.tables), columns)
