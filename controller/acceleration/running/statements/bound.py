"""DuckDB's bound logical plan of a statement, as `json_serialize_plan` gives it.

In a bound plan names are resolved to positions, `*`, macros and positions are expanded, implicit casts and collations
are explicit, and most subqueries have become joins. Column references (`BOUND_REF`) count the columns of an operator's
children from the left. Before optimization no operator reads less than it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import duckdb

from controller.acceleration.running.errors import StatementError

Node = dict[str, Any]
"""An operator, an expression, or a part of one."""

GET: Final = "LOGICAL_GET"
CTE: Final = "LOGICAL_MATERIALIZED_CTE"
CTE_REF: Final = "LOGICAL_CTE_REF"
_SCAN: Final = "seq_scan"
_NAN: Final = re.compile(r'"value":NAN\b')
"""DuckDB writes this constant in a form that JSON does not have."""


def bound_plan(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """Return the root operator of one SELECT over the connection's tables; raise StatementError for anything else."""
    try:
        statements = connection.extract_statements(sql)
    except duckdb.Error as error:
        raise StatementError(f"SQL: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise StatementError("SQL: one SELECT is run")
    rows = connection.execute("SELECT json_serialize_plan(?, skip_null := true, skip_empty := true)", [sql]).fetchall()
    answer = json.loads(_NAN.sub('"value":"nan"', str(rows[0][0])))
    if answer["error"]:
        raise StatementError(f"SQL: {str(answer.get('error_message')).splitlines()[0]}")
    plan: Node = answer["plans"][0]
    return plan


def operators(plan: Node) -> Iterator[Node]:
    """Yield an operator and all below it."""
    yield plan
    for child in children(plan):
        yield from operators(child)


def children(operator: Node) -> list[Node]:
    """Return the operators whose rows an operator reads."""
    inputs: list[Node] = operator.get("children", [])
    return inputs


def table_of(operator: Node) -> str | None:
    """Return the name of the table that an operator scans, None if it scans none."""
    if operator["type"] != GET or operator["qname"]["path"][-1] != _SCAN:
        return None
    return str(operator["function_data"]["table"])


def scans(plan: Node, table: str) -> int:
    """Return how often a plan scans a table."""
    return sum(table_of(operator) == table for operator in operators(plan))


def inlined(plan: Node, sharded: str) -> Node:
    """Return a plan in which common table expressions stand where they are used.

    One that reads the sharded table and is used several times stays: in its place the table would be scanned as often.
    """
    plan = plan | {"children": [inlined(child, sharded) for child in children(plan)]}
    if plan["type"] != CTE:
        return plan
    definition, body = plan["children"]
    index = plan["table_index"]
    uses = sum(node["type"] == CTE_REF and node["cte_index"] == index for node in operators(body))
    if uses > 1 and scans(definition, sharded):
        return plan
    return _replaced(body, index, definition)


def _replaced(plan: Node, index: int, definition: Node) -> Node:
    if plan["type"] == CTE_REF and plan["cte_index"] == index:
        return definition
    return plan | {"children": [_replaced(child, index, definition) for child in children(plan)]}
