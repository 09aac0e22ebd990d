"""Nodes of bound plans: the keys that are known, and their columns.

A key that is unknown may change a result, so that its statement is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from controller.acceleration.running.spark.functions import refused
from controller.acceleration.running.statements.bound import Node, children

_COMMON: Final = frozenset({
    "alias", "children", "expression_class", "query_location", "query_location_length", "return_type", "type",
    "estimated_cardinality", "has_estimated_cardinality", "table_index", "types", "expressions",
})  # fmt: skip
_CALL: Final = frozenset({"arguments", "function_data", "has_serialize", "is_operator", "qname", "original_arguments"})
_SET: Final = frozenset({"allow_out_of_order", "column_count", "setop_all"})
_MAPS: Final = frozenset({"left_projection_map", "right_projection_map"})
_KNOWN: Final = {
    "BOUND_AGGREGATE": _CALL | {"aggregate_type", "filter", "order_bys", "state_export"},
    "BOUND_CASE": {"case_checks", "else_expr"},
    "BOUND_CONJUNCTION": set[str](),
    "BOUND_CONSTANT": {"value"},
    "BOUND_FUNCTION": _CALL,
    "BOUND_OPERATOR": set[str](),
    "BOUND_REF": {"index"},
    "BOUND_WINDOW": _CALL | {
        "arg_orders", "distinct", "end", "end_expr", "exclude_clause", "filters", "ignore_nulls", "orders",
        "partitions", "sql_range_order_type", "start", "start_expr",
    },
    "LOGICAL_AGGREGATE_AND_GROUP_BY": {
        "aggregate_index", "distinct_validity", "group_index", "grouping_functions", "grouping_sets", "groupings_index",
        "groups",
    },
    "LOGICAL_ANY_JOIN": _MAPS | {"condition", "join_type", "mark_index"},
    "LOGICAL_COMPARISON_JOIN": _MAPS | {"conditions", "delim_flipped", "join_type", "mark_index", "mark_types"},
    "LOGICAL_CROSS_PRODUCT": set[str](),
    "LOGICAL_CTE_REF": {"bound_columns", "chunk_types", "cte_index", "is_recurring"},
    "LOGICAL_DISTINCT": {"distinct_targets", "distinct_type", "order_by"},
    "LOGICAL_DUMMY_SCAN": set[str](),
    "LOGICAL_FILTER": {"projection_map"},
    "LOGICAL_GET": {
        "arguments", "column_indexes", "extra_info", "function_data", "has_pushed_projection", "has_serialize",
        "input_table_names", "input_table_types", "named_parameters", "names", "ordinality_idx", "parameters",
        "projected_input", "projection_ids", "qname", "returned_types", "source_ordinality", "table_filters",
        "table_filters_by_projection",
    },
    "LOGICAL_LIMIT": {"limit_val", "offset_val", "unpruned_offset"},
    "LOGICAL_MATERIALIZED_CTE": {"column_count", "ctename", "materialize"},
    "LOGICAL_ORDER_BY": {"orders", "projection_map"},
    "LOGICAL_PROJECTION": set[str](),
    "LOGICAL_UNION": _SET,
    "LOGICAL_EXCEPT": _SET,
    "LOGICAL_INTERSECT": _SET,
    "LOGICAL_WINDOW": {"window_index"},
}  # fmt: skip

SET_OPERATIONS: Final = {"LOGICAL_UNION": "UNION ALL", "LOGICAL_EXCEPT": "EXCEPT", "LOGICAL_INTERSECT": "INTERSECT"}
"""Set operations in Spark SQL."""
_OWN_WIDTHS: Final[Mapping[str, Callable[[Node], int]]] = {
    "LOGICAL_GET": lambda node: len(node.get("projection_ids") or node.get("column_indexes", [])),
    "LOGICAL_PROJECTION": lambda node: len(node["expressions"]),
    "LOGICAL_AGGREGATE_AND_GROUP_BY": lambda node: sum(
        len(node.get(key, [])) for key in ("groups", "expressions", "grouping_functions")
    ),
    "LOGICAL_CTE_REF": lambda node: len(node["chunk_types"]),
    "LOGICAL_DUMMY_SCAN": lambda _node: 1,
    **dict.fromkeys(SET_OPERATIONS, lambda node: int(node["column_count"])),
}
"""The number of columns of operators that do not pass on those below."""


def check_keys(node: Node) -> None:
    """Raise StatementError if an operator or expression is not whitelisted, or has a part that is not."""
    name = node.get("expression_class") or node["type"]
    words = name.removeprefix("LOGICAL_").removeprefix("BOUND_").replace("_", " ")
    if name not in _KNOWN:
        raise refused(words)
    for key, value in node.items():
        if value and key not in _COMMON and key not in _KNOWN[name]:
            raise refused(f"{words} with {key}")


def is_ref(node: Node, index: int) -> bool:
    """Return whether an expression is this column of an operator's children."""
    return bool(node["expression_class"] == "BOUND_REF" and node["index"] == index)


def is_not_ref(node: Node, index: int) -> bool:
    """Return whether an expression is the negation of this column."""
    return bool(node["type"] == "OPERATOR_NOT" and is_ref(node["children"][0], index))


def highest(node: object) -> int:
    """Return the highest position of a column in an expression, -1 without any."""
    if isinstance(node, dict):
        own = node["index"] if node.get("expression_class") == "BOUND_REF" else -1
        return max([own, *map(highest, node.values())])
    return max(map(highest, node), default=-1) if isinstance(node, list) else -1


def width(node: Node) -> int | None:
    """Return the number of an operator's columns, None if it is of an unknown kind."""
    below = [width(child) for child in children(node)]
    if None in below:
        return None
    sides = [number for number in below if number is not None]
    for key, side in (("left_projection_map", 0), ("right_projection_map", 1)):
        if node.get(key) and side < len(sides):
            sides[side] = len(node[key])
    kind = node["type"]
    if kind in _OWN_WIDTHS:
        return _OWN_WIDTHS[kind](node)
    if kind in {"LOGICAL_FILTER", "LOGICAL_ORDER_BY", "LOGICAL_LIMIT", "LOGICAL_DISTINCT"}:
        return len(node.get("projection_map") or ()) or sides[0]
    if kind == "LOGICAL_WINDOW":
        return sides[0] + len(node["expressions"])
    if kind in {"LOGICAL_CROSS_PRODUCT", "LOGICAL_COMPARISON_JOIN", "LOGICAL_ANY_JOIN"}:
        return sides[0] + {"SEMI": 0, "ANTI": 0, "MARK": 1}.get(node.get("join_type", ""), sides[1])
    return sides[1] if kind == "LOGICAL_MATERIALIZED_CTE" else None


def conjuncts(node: Node) -> Iterator[Node]:
    """Yield the conditions of which all must hold."""
    if node["expression_class"] == "BOUND_CONJUNCTION" and node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from conjuncts(child)
    else:
        yield node
