"""Operators by name as statements, so that every engine's results can be checked against DuckDB's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.statements.splitting import split_statement
from controller.acceleration.running.values import Engine, Operator, OperatorKind, Plan

COUNT: Final = "number"
"""Name of an aggregate's row-count column."""


def plan_of_statement(
    sql: str, tables: Mapping[str, pa.Table], sharded: str | None = None, devices: Mapping[str, str] | None = None
) -> Plan:
    """Return the plan of a statement, computed by DuckDB except for steps with other devices, by name."""
    return Plan(engine=Engine.DUCKDB, split=split_statement(sql, tables, sharded), devices=dict(devices or {}))


def plan_of_operator(operator: Operator, tables: Mapping[str, pa.Table], engine: Engine) -> Plan:
    """Return the plan of an operator by an engine; raise RunError for missing or non-numeric columns."""
    table = _table(operator.table, tables)
    for column in filter(None, (operator.column, *operator.sums)):
        _check(column, operator.table, table)
    if operator.kind is OperatorKind.JOIN:
        _check(operator.column, operator.other, _table(operator.other, tables))
    if not operator.column and operator.kind is not OperatorKind.AGGREGATE:
        raise RunError(f"{operator.kind}: a column is needed")
    if engine is not Engine.DUCKDB:
        for name in {operator.table, operator.other} & tables.keys():
            for column in tables[name].column_names:
                _check_number(column, name, tables[name])
    split = split_statement(sql_of(operator), tables, operator.table)
    return Plan(engine=engine, split=split, operator=operator)


def sql_of(operator: Operator) -> str:
    """Return an operator as a statement."""
    table, column = _quoted(operator.table), _quoted(operator.column)
    match operator.kind:
        case OperatorKind.FILTER:
            return f"SELECT * FROM {table} WHERE {column} < {operator.below!r}"
        case OperatorKind.JOIN:
            return f"SELECT * FROM {table} JOIN {_quoted(operator.other)} USING ({column})"
        case OperatorKind.SORT:
            limit = f" LIMIT {operator.limit}" if operator.limit else ""
            return f"SELECT * FROM {table} ORDER BY {column}{limit}"
        case OperatorKind.AGGREGATE:
            sums = [f"sum({_quoted(name)}) AS {_quoted(name)}" for name in operator.sums]
            values = ", ".join([*sums, f"count(*) AS {COUNT}"])
            return f"SELECT {column}, {values} FROM {table} GROUP BY {column}" if operator.column else (
                f"SELECT {values} FROM {table}"
            )  # fmt: skip


def _table(name: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    if name not in tables:
        raise RunError(f"no table {name!r}; known: {', '.join(sorted(tables)) or 'none'}")
    return tables[name]


def _check(column: str, name: str, table: pa.Table) -> None:
    if column not in table.column_names:
        raise RunError(f"table {name} has no column {column!r}; it has {', '.join(table.column_names)}")


def _check_number(column: str, name: str, table: pa.Table) -> None:
    kind = table.schema.field(column).type
    if kind not in (pa.int32(), pa.int64(), pa.float64()):
        raise RunError(f"table {name}: column {column} is {kind}; numpy and torch compute int32, int64 and double")
    if table.column(column).null_count:
        raise RunError(f"table {name}: column {column} has NULLs; only DuckDB computes them")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
