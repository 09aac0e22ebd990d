"""Types, constants and names of bound plans as SQL; a type that is not named here is refused with StatementError."""

from __future__ import annotations

from typing import Any, Final

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import Node

_SIMPLE_TYPES: Final = frozenset({
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
    "UHUGEINT", "FLOAT", "DOUBLE", "VARCHAR", "CHAR", "BLOB", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S",
    "TIMESTAMP_MS", "TIMESTAMP_NS", "INTERVAL", "UUID",
})  # fmt: skip
_NUMBERS: Final = frozenset({
    "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"
})  # fmt: skip
ZONED: Final = "TIMESTAMP WITH TIME ZONE"


def type_of(node: Node) -> Node:
    """Return the type of an expression."""
    # Conjunctions have no type of their own.
    is_constant = node["expression_class"] == "BOUND_CONSTANT"
    kind: Node = node["value"]["type"] if is_constant else node.get("return_type", {"id": "BOOLEAN"})
    return kind


def is_zoned(kind: Node) -> bool:
    """Return whether a type is a timestamp that depends on the time zone."""
    return bool(kind["id"] == ZONED)


def is_number(kind: Node) -> bool:
    """Return whether a type is an integer or a decimal."""
    return kind["id"] in _NUMBERS or kind["id"] == "DECIMAL"


def type_text(kind: Node) -> str:
    """Return the SQL of a type; a collation is not part of it: plans have applied it."""
    identifier, info = kind["id"], kind.get("type_info", {})
    if identifier in _SIMPLE_TYPES:
        return str(identifier)
    match identifier:
        case "DECIMAL":
            return f"DECIMAL({info['width']}, {info['scale']})"
        case "LIST":
            return f"{type_text(info['child_type'])}[]"
        case "ARRAY":
            return f"{type_text(info['child_type'])}[{info['size']}]"
        case "STRUCT":
            members = (f"{quoted(each['first'])} {type_text(each['second'])}" for each in info["child_types"])
            return f"STRUCT({', '.join(members)})"
        case "MAP":
            key, value = (each["second"] for each in info["child_type"]["type_info"]["child_types"])
            return f"MAP({type_text(key)}, {type_text(value)})"
        case "ENUM":
            return f"ENUM({', '.join(_text(value) for value in info['values'])})"
        case "TIMESTAMP WITH TIME ZONE":
            return ZONED
        case "NULL":
            return '"NULL"'
        case _:
            raise StatementError(f"SQL: type {identifier} cannot be split across workers")


def constant(value: Node) -> str:
    """Return the SQL of a constant."""
    kind = value["type"]
    if value["is_null"]:
        return "NULL" if kind["id"] == "NULL" else f"CAST(NULL AS {type_text(kind)})"
    literal: Any = value["value"]
    if isinstance(literal, dict) and literal.keys() == {"upper", "lower"}:
        literal = (literal["upper"] << 64) + literal["lower"]
    if kind["id"] == "BOOLEAN":
        return "true" if literal else "false"
    if kind["id"] in _NUMBERS and isinstance(literal, int):
        return f"CAST({literal} AS {kind['id']})"
    if kind["id"] in {"FLOAT", "DOUBLE"}:
        return f"CAST({_text(str(literal))} AS {kind['id']})"
    if kind["id"] == "DECIMAL" and isinstance(literal, int):
        return f"({_decimal(literal, kind['type_info']['scale'])}::{type_text(kind)})"
    if kind["id"] == "VARCHAR" and isinstance(literal, str):
        return _text(literal)
    if kind["id"] == "DATE" and isinstance(literal, int):
        return f"(DATE '1970-01-01' + {literal})"
    if kind["id"] == "TIMESTAMP" and isinstance(literal, int):
        return f"make_timestamp({literal})"
    if kind["id"] == "INTERVAL" and isinstance(literal, dict):
        months, days, micros = (literal.get(key, 0) for key in ("months", "days", "micros"))
        return f"(to_months({months}) + to_days({days}) + to_microseconds({micros}))"
    raise StatementError(f"SQL: a constant of type {kind['id']} cannot be split across workers")


def _decimal(number: int, scale: int) -> str:
    digits = str(abs(number)).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """Return a name in quotation marks."""
    return '"' + name.replace('"', '""') + '"'
