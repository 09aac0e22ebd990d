"""Window functions of bound plans in Spark SQL."""

from __future__ import annotations

from typing import Final

from controller.acceleration.running.spark.expressions import Expressions, Refer, key_text
from controller.acceleration.running.spark.functions import refused
from controller.acceleration.running.spark.nodes import check_keys
from controller.acceleration.running.spark.types import spark_type
from controller.acceleration.running.statements.bound import Node
from controller.acceleration.running.statements.literals import type_of

_RANKS: Final = {
    "WINDOW_ROW_NUMBER": "row_number()",
    "WINDOW_RANK": "rank()",
    "WINDOW_RANK_DENSE": "dense_rank()",
    "WINDOW_PERCENT_RANK": "percent_rank()",
    "WINDOW_CUME_DIST": "cume_dist()",
}
_MOVES: Final = {"WINDOW_LAG": "lag", "WINDOW_LEAD": "lead"}
_VALUES: Final = {"WINDOW_FIRST_VALUE": "first_value", "WINDOW_LAST_VALUE": "last_value"}
_BOUNDS: Final = {
    "UNBOUNDED_PRECEDING": "UNBOUNDED PRECEDING",
    "UNBOUNDED_FOLLOWING": "UNBOUNDED FOLLOWING",
    "CURRENT_ROW_ROWS": "CURRENT ROW",
    "CURRENT_ROW_RANGE": "CURRENT ROW",
    "EXPR_PRECEDING_ROWS": "PRECEDING",
    "EXPR_FOLLOWING_ROWS": "FOLLOWING",
}
_MOST_OFFSET: Final = 1_000_000


def window(expressions: Expressions, node: Node, refer: Refer) -> str:
    """Return a window function with its window; what depends on an order that is not given is refused."""
    check_keys(node)
    kind, orders = node["type"], node.get("orders", [])
    if node["ignore_nulls"] or node.get("exclude_clause", "NO_OTHER") != "NO_OTHER" or node.get("arg_orders"):
        raise refused("a window with IGNORE NULLS, EXCLUDE or an order of its arguments")
    keys = [key_text(expressions.expression(each, refer), type_of(each)) for each in node.get("partitions", [])]
    parts = [f"PARTITION BY {', '.join(keys)}"] if keys else []
    if orders:
        parts.append(f"ORDER BY {', '.join(expressions.order(order, refer) for order in orders)}")
    if kind != "WINDOW_AGGREGATE" and (node.get("filters") or node.get("distinct")):
        raise refused("a window function with FILTER or DISTINCT")
    if kind == "WINDOW_AGGREGATE":
        over = f" OVER ({' '.join([*parts, *_frame(expressions, node)])})"
        return expressions.aggregate(node, refer, over)
    if not orders:
        raise refused("a window function that needs an order, without one,")
    over = f" OVER ({' '.join(parts)})"
    result = spark_type(type_of(node))
    if kind in _RANKS:
        return f"CAST({_RANKS[kind]}{over} AS {result})"
    arguments: list[Node] = node.get("children", [])
    if kind == "WINDOW_NTILE":
        return f"CAST(ntile({_number(expressions, arguments[0], 1)}){over} AS {result})"
    if kind in _MOVES:
        value = expressions.expression(arguments[0], refer)
        more = [str(_number(expressions, arguments[1], 0))] if len(arguments) > 1 else []
        if len(arguments) > 2:
            more.append(expressions.expression(arguments[2], refer))
        return f"{_MOVES[kind]}({', '.join([value, *more])}){over}"
    if kind in _VALUES:
        over = f" OVER ({' '.join([*parts, *_frame(expressions, node)])})"
        return f"{_VALUES[kind]}({expressions.expression(arguments[0], refer)}){over}"
    raise refused(kind.replace("_", " "))


def _frame(expressions: Expressions, node: Node) -> list[str]:
    """Return the frame, none for that which is the default of both."""
    start, end = node["start"], node["end"]
    is_by_rows = any(each.endswith("_ROWS") for each in (start, end))
    if not node.get("orders"):
        if is_by_rows:
            raise refused("a window of ROWS without an order")
        return []
    if start not in _BOUNDS or end not in _BOUNDS:
        raise refused(f"a window from {start} to {end}")
    one, other = (_bound(expressions, node, side) for side in ("start", "end"))
    return [f"{'ROWS' if is_by_rows else 'RANGE'} BETWEEN {one} AND {other}"]


def _bound(expressions: Expressions, node: Node, side: str) -> str:
    words = _BOUNDS[node[side]]
    if node[side].startswith("EXPR_"):
        return f"{_number(expressions, node[f'{side}_expr'], 0)} {words}"
    return words


def _number(expressions: Expressions, node: Node, least: int) -> int:
    value = expressions.constant(node)
    if not isinstance(value, int) or not least <= value <= _MOST_OFFSET:
        raise refused(f"a window over {value} rows")
    return value
