"""DuckDB's types and constants in Spark SQL; a type that is not named here is refused with StatementError.

Spark has no unsigned and no 128-bit integers: unsigned ones are columns of the next wider type, HUGEINT is
DECIMAL(38, 0), whose overflow is an error as well.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import Node

_SPARK: Final = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "HUGEINT": "DECIMAL(38, 0)",
    "UTINYINT": "SMALLINT",
    "USMALLINT": "INT",
    "UINTEGER": "BIGINT",
    "UBIGINT": "DECIMAL(20, 0)",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "VARCHAR": "STRING",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "NULL": "VOID",
}
SIGNED: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT"})
UNSIGNED: Final = frozenset({"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"})
INTEGERS: Final = SIGNED | UNSIGNED | {"HUGEINT"}
FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})


def spark_type(kind: Node) -> str:
    """Return the Spark SQL of a type of a bound plan."""
    if kind["id"] == "DECIMAL":
        return f"DECIMAL({kind['type_info']['width']}, {kind['type_info']['scale']})"
    if kind["id"] == "VARCHAR" and kind.get("type_info", {}).get("collation"):
        raise StatementError("SQL: a collation cannot be run on Spark")
    if kind["id"] not in _SPARK:
        raise StatementError(f"SQL: type {kind['id']} cannot be run on Spark")
    return _SPARK[kind["id"]]


def literal(value: object, kind: Node) -> str:
    """Return the Spark SQL of a value of a type, as DuckDB's Python client gives it."""
    target = spark_type(kind)
    match value:
        case None:
            return "NULL" if target == "VOID" else f"CAST(NULL AS {target})"
        case bool():
            return "true" if value else "false"
        case int() | Decimal():
            return f"CAST('{value:f}' AS {target})" if isinstance(value, Decimal) else f"CAST({value} AS {target})"
        case float():
            return f"CAST({text(_float(value))} AS {target})"
        case str():
            return text(value)
        case datetime():
            return f"TIMESTAMP_NTZ'{value.isoformat(' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case _:
            raise StatementError(f"SQL: a constant of type {kind['id']} cannot be run on Spark")


def _float(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def text(value: str) -> str:
    """Return a string constant; a backslash escapes in Spark."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
