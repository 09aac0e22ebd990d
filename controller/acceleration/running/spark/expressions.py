"""Expressions, aggregates and orders of bound plans in Spark SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import duckdb

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark import functions
from controller.acceleration.running.spark.functions import raised, refused
from controller.acceleration.running.spark.nodes import check_keys
from controller.acceleration.running.spark.types import FLOATS, INTEGERS, SIGNED, literal, spark_type, text
from controller.acceleration.running.statements.bound import Node
from controller.acceleration.running.statements.literals import type_of
from controller.acceleration.running.statements.rendering import Renderer, aggregate_name, operator_text, orders_of

Refer = Callable[[int], str]
"""The SQL of a column by its position among the columns of an operator's children."""

COMPARISONS: Final = {
    "COMPARE_EQUAL": "({} = {})",
    "COMPARE_NOTEQUAL": "({} <> {})",
    "COMPARE_LESSTHAN": "({} < {})",
    "COMPARE_GREATERTHAN": "({} > {})",
    "COMPARE_LESSTHANOREQUALTO": "({} <= {})",
    "COMPARE_GREATERTHANOREQUALTO": "({} >= {})",
    "COMPARE_DISTINCT_FROM": "(NOT ({} <=> {}))",
    "COMPARE_NOT_DISTINCT_FROM": "({} <=> {})",
}
_PLAIN: Final = {"min": "min", "max": "max", "bool_and": "bool_and", "bool_or": "bool_or"}
_BITS: Final = {"bit_and": "bit_and", "bit_or": "bit_or", "bit_xor": "bit_xor"}
_DEVIATIONS: Final = frozenset({"stddev_samp", "stddev_pop", "var_samp", "var_pop", "stddev", "variance"})
_EXACT: Final = 1 << 52
"""Integers up to here are exact in a double."""
_NOTHING: Final = object()


class Expressions:
    """Renders expressions; DuckDB itself computes those without columns."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def expression(self, node: Node, refer: Refer) -> str:
        """Return an expression's Spark SQL, in parentheses where it needs them."""
        check_keys(node)
        kind = node["expression_class"]
        if kind == "BOUND_REF":
            return refer(node["index"])
        if not _has_columns(node) and (value := self._computed(node)) is not _NOTHING:
            return literal(value, type_of(node))
        match kind:
            case "BOUND_FUNCTION":
                return self._function(node, refer)
            case "BOUND_CONJUNCTION":
                word = " AND " if node["type"] == "CONJUNCTION_AND" else " OR "
                return f"({word.join(self._all(node['children'], refer))})"
            case "BOUND_OPERATOR":
                return self._operator(node, refer)
            case "BOUND_CASE":
                checks = [
                    f"WHEN {self.expression(check['when_expr'], refer)} "
                    f"THEN {self.expression(check['then_expr'], refer)}"
                    for check in node["case_checks"]
                ]
                return f"(CASE {' '.join(checks)} ELSE {self.expression(node['else_expr'], refer)} END)"
            case _:
                raise refused(str(kind).removeprefix("BOUND_").replace("_", " "))

    def constant(self, node: Node) -> object:
        """Return the value of an expression without columns; StatementError if it is none."""
        value = _NOTHING if _has_columns(node) else self._computed(node)
        if value is _NOTHING:
            raise refused("a value that is not constant in this place")
        return value

    def order(self, node: Node, refer: Refer) -> str:
        """Return a key of ORDER BY."""
        way = "DESC" if node["type"] == "DESCENDING" else "ASC"
        nulls = "NULLS FIRST" if node["null_order"].replace("_", " ") == "NULLS FIRST" else "NULLS LAST"
        spark_type(type_of(node["expression"]))
        return f"{self.expression(node['expression'], refer)} {way} {nulls}"

    # scalar expressions

    def _all(self, nodes: Sequence[Node], refer: Refer) -> list[str]:
        return [self.expression(node, refer) for node in nodes]

    def _computed(self, node: Node) -> object:
        """Return what DuckDB computes, or nothing: an error must only occur where the value is used."""
        try:
            rendered = Renderer().expression(node, _no_column)
            row = self._connection.execute(f"SELECT {rendered}").fetchone()
        except (StatementError, duckdb.Error):
            return _NOTHING
        assert row is not None
        return row[0]

    def _operator(self, node: Node, refer: Refer) -> str:
        written = operator_text(node["type"], self._all(node["children"], refer))
        if written is None:
            raise refused(node["type"].removeprefix("OPERATOR_").replace("_", " "))
        return written

    def _function(self, node: Node, refer: Refer) -> str:
        nodes: list[Node] = node.get("children", [])
        kinds = [type_of(each) for each in nodes]
        for kind in kinds:
            if kind["id"] != "INTERVAL":
                spark_type(kind)
        name = str(node["qname"]["path"][-1])
        if name == "error":
            return f"raise_error({text(str(self.constant(nodes[0])).splitlines()[0])})"
        if special := self._with_constants(name, nodes, kinds, node, refer):
            return special
        arguments = self._all(nodes, refer)
        if node["type"] in COMPARISONS:
            return COMPARISONS[node["type"]].format(*arguments)
        if node["type"] == "OPERATOR_CAST":
            is_tried = node["function_data"]["try_cast"]
            return functions.cast(arguments[0], kinds[0], type_of(node), is_tried=is_tried)
        if node["type"] != "BOUND_FUNCTION":
            raise refused(name)
        return functions.call(name, arguments, kinds, type_of(node))

    def _with_constants(self, name: str, nodes: list[Node], kinds: list[Node], node: Node, refer: Refer) -> str:
        """Return a function some of whose arguments must be constants, '' for any other."""
        match name, len(nodes):
            case (("~~" | "!~~"), 2):
                like = functions.like(self.expression(nodes[0], refer), self.constant(nodes[1]))
                return like if name == "~~" else f"(NOT {like})"
            case (("like_escape" | "not_like_escape"), 3):
                pattern, escape = self.constant(nodes[1]), self.constant(nodes[2])
                like = functions.like(self.expression(nodes[0], refer), pattern, escape)
                return like if name == "like_escape" else f"(NOT {like})"
            case (("substring" | "substr"), (2 | 3)):
                length = self.constant(nodes[2]) if len(nodes) == 3 else None
                return functions.substring(self.expression(nodes[0], refer), self.constant(nodes[1]), length)
            case (("date_part" | "datepart"), 2):
                return functions.part(self.constant(nodes[0]), self.expression(nodes[1], refer), kinds[1]["id"])
            case (("date_trunc" | "datetrunc"), 2):
                argument = self.expression(nodes[1], refer)
                return functions.truncated(self.constant(nodes[0]), argument, kinds[1], type_of(node))
            case "round", (1 | 2):
                digits = self.constant(nodes[1]) if len(nodes) == 2 else 0
                return functions.rounded(self.expression(nodes[0], refer), digits, kinds[0], type_of(node))
            case (("+" | "-"), 2) if kinds[1]["id"] == "INTERVAL" and kinds[0]["id"] in {"DATE", "TIMESTAMP"}:
                moment = f"CAST({self.expression(nodes[0], refer)} AS TIMESTAMP_NTZ)"
                return functions.moved(name, moment, *self._interval(nodes[1]))
            case _:
                return ""

    def _interval(self, node: Node) -> tuple[int, int, int]:
        """Return months, days and microseconds of a constant interval."""
        if _has_columns(node):
            raise refused("an interval that is not constant")
        rendered = Renderer().expression(node, _no_column)
        row = self._connection.execute(
            "SELECT 12 * extract(year FROM i) + extract(month FROM i), extract(day FROM i), "
            "(3600 * extract(hour FROM i) + 60 * extract(minute FROM i)) * 1000000 + extract(microsecond FROM i) "
            f"FROM (SELECT {rendered} AS i)"
        ).fetchone()
        if row is None or row[0] is None:
            raise refused("an interval of NULL")
        return int(row[0]), int(row[1]), int(row[2])

    # aggregates

    def aggregate(self, node: Node, refer: Refer, over: str = "") -> str:
        """Return an aggregate of groups, or one over a window; what depends on the order of rows is refused.

        A filter becomes a condition of the argument: NULLs are skipped by all these aggregates.
        """
        check_keys(node)
        name, kinds = aggregate_name(node), [type_of(each) for each in node.get("children", [])]
        is_bound = bool(node.get("function_data")) and name != "median"
        if orders_of(node) or node.get("arg_orders") or is_bound or len(kinds) > 1:
            raise refused(f"aggregate {name} of this form")
        is_distinct = node.get("aggregate_type") == "DISTINCT" or bool(node.get("distinct"))
        condition = node.get("filter") or node.get("filters")
        where = self.expression(condition, refer) if condition else ""
        if name in {"count_star", "count"} and not kinds:
            argument = f"CASE WHEN {where} THEN 1 END" if where else "*"
            return f"CAST(count({argument}){over} AS BIGINT)"
        if not kinds:
            raise refused(f"aggregate {name} without an argument")
        (kind,) = kinds
        spark_type(kind)
        argument = self.expression(node["children"][0], refer)
        if is_distinct:
            argument = f"DISTINCT {key_text(argument, kind)}" if not where else ""
        elif where:
            argument = f"CASE WHEN {where} THEN {argument} END"
        if not argument or (is_distinct and (over or name not in {"count", "sum", "avg", "min", "max"})):
            raise refused(f"{name}(DISTINCT ...) of this form")
        return self._of_one(name, argument, kind, type_of(node), over)

    def _of_one(self, name: str, argument: str, kind: Node, result: Node, over: str) -> str:
        target, number = spark_type(result), kind["id"]
        is_exact = number in INTEGERS or number == "DECIMAL"
        if name == "count":
            return f"count({argument}){over}"
        if name in {"sum", "sum_no_overflow"} and (is_exact or number in FLOATS):
            return f"CAST(sum({_widened(argument, number)}){over} AS {target})"
        if name == "avg" and number in FLOATS and result["id"] == "DOUBLE":
            return f"avg({argument}){over}"
        if name == "avg" and is_exact and result["id"] == "DOUBLE":
            total = f"CAST(sum({_widened(argument, number)}){over} AS DOUBLE)"
            return f"({total} / nullif(count({argument}){over}, 0))"
        if name in _PLAIN and (name not in {"bool_and", "bool_or"} or number == "BOOLEAN"):
            return f"{_PLAIN[name]}({argument}){over}"
        if name in _BITS and number in SIGNED:
            return f"{_BITS[name]}({argument}){over}"
        if name == "count_if" and number == "BOOLEAN":
            return f"CAST(sum(CASE WHEN {argument} THEN 1 WHEN NOT {argument} THEN 0 END){over} AS {target})"
        if name in _DEVIATIONS and number == "DOUBLE" and not over:
            return f"{name.replace('variance', 'var_samp')}({argument})"
        if name == "median" and not over and result["id"] == "DOUBLE":
            return _median(argument, number)
        if name == "first" and not over:
            raise refused("aggregate first, whose result depends on the order of rows,")
        raise refused(f"aggregate {name}({number})")


def key_text(key: str, kind: Node) -> str:
    """Return a key of groups or of distinct values; StatementError for a type without one."""
    spark_type(kind)
    return key


def _median(argument: str, number: str) -> str:
    """Return a median: the mean of two values in the middle is exact for integers, and finite for doubles."""
    if number in SIGNED:
        if number != "BIGINT":
            return f"median({argument})"
        error = raised("the median of integers beyond 2**52 cannot be run on Spark", "BIGINT")
        is_exact = f"{argument} BETWEEN {-_EXACT} AND {_EXACT} OR {argument} IS NULL"
        return f"median(CASE WHEN {is_exact} THEN {argument} ELSE {error} END)"
    if number == "DOUBLE":
        error = raised("the median of numbers that are not finite cannot be run on Spark", "DOUBLE")
        return f"median(CASE WHEN abs({argument}) < 1e300D OR {argument} IS NULL THEN {argument} ELSE {error} END)"
    raise refused(f"aggregate median({number})")


def _widened(argument: str, number: str) -> str:
    """Return the argument of a sum as a type in which Spark adds as many rows as there are."""
    distinct, bare = (
        ("DISTINCT ", argument.removeprefix("DISTINCT ")) if argument.startswith("DISTINCT ") else ("", argument)
    )
    if number in {"BIGINT", "UINTEGER"}:
        return f"{distinct}CAST({bare} AS DECIMAL(19, 0))"
    if number == "FLOAT":
        return f"{distinct}CAST({bare} AS DOUBLE)"
    return argument


def _has_columns(node: object) -> bool:
    if isinstance(node, dict):
        return node.get("expression_class") == "BOUND_REF" or any(map(_has_columns, node.values()))
    return isinstance(node, list) and any(map(_has_columns, node))


def _no_column(_index: int) -> str:
    raise AssertionError("an expression without columns refers to one")
