"""Bound plans as SQL: each operator becomes a SELECT whose columns are c0, c1, ...

What is rendered is a whitelist: an operator, expression, function or type that is not named here is refused with
StatementError. The SQL binds to the same functions, since all casts are explicit and all arguments have their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import duckdb

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import CTE_REF, Node, children, operators, table_of
from controller.acceleration.running.statements.literals import ZONED, constant, is_zoned, quoted, type_of, type_text

Refer = Callable[[int], str]
"""The SQL of a column by its position among the columns of an operator's children."""

_COMPARISONS: Final = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}
_JOINS: Final = {"INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "OUTER": "FULL JOIN", "FULL": "FULL JOIN"}
_HALF_JOINS: Final = {"SEMI": "EXISTS", "ANTI": "NOT EXISTS"}
_ROW_ID: Final = 1 << 63
"""Columns from here on are virtual: the row's number, or no column at all."""
_ARITHMETIC: Final = frozenset({"+", "-", "*", "%"})
ORDERLESS: Final = frozenset({
    "count", "count_star", "count_if", "sum", "sum_no_overflow", "avg", "min", "max", "bool_and", "bool_or", "bit_and",
    "bit_or", "bit_xor", "arg_min", "arg_max", "stddev_samp", "stddev_pop", "var_samp", "var_pop",
})  # fmt: skip
"""Aggregates that do not depend on the order of rows, up to the order in which floating-point numbers are added."""
COLLATED_GROUP: Final = "__collated_group"
"""DuckDB's alias of the aggregate that shows one spelling of a group under a collation."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A SELECT of these expressions from a source; `tail` orders and limits its rows."""

    columns: tuple[str, ...]
    source: str
    tail: str = ""

    @property
    def sql(self) -> str:
        """The statement; its columns are c0, c1, ..."""
        columns = ", ".join(f"{text} AS c{index}" for index, text in enumerate(self.columns)) or "1 AS c0"
        return f"SELECT {columns} FROM {self.source}{self.tail}"


class Renderer:
    """Renders operators; those in `given`, by identity, are already SQL."""

    def __init__(self, given: Mapping[int, Relation] | None = None) -> None:
        self._given = dict(given or {})
        self._names = 0

    # operators

    def relation(self, node: Node) -> Relation:
        """Return an operator as a SELECT."""
        if (relation := self._given.get(id(node))) is not None:
            return relation
        render: Callable[[Node], Relation] | None = getattr(self, f"_render_{node['type'].lower()}", None)
        if render is None:
            raise StatementError(f"SQL: {_spoken(node['type'])} cannot be split across workers")
        return render(node)

    def _child(self, node: Node) -> Relation:
        return self.relation(children(node)[0])

    def _named(self, relation: Relation) -> tuple[str, Refer]:
        """Return a relation as a source under a new name, and what refers to its columns."""
        self._names += 1
        name = f"t{self._names}"
        return f"({relation.sql}) AS {name}", lambda index: f"{name}.c{index}"

    def _over(self, relation: Relation) -> tuple[Relation, Refer]:
        """Return all columns of a relation as a SELECT of its own."""
        source, refer = self._named(relation)
        return Relation(tuple(refer(index) for index in range(len(relation.columns))), source), refer

    def _render_logical_get(self, node: Node) -> Relation:
        table = table_of(node)
        if table is None:
            raise StatementError(f"SQL: table function {node['qname']['path'][-1]} cannot be split across workers")
        if node.get("table_filters") or any("child_indexes" in column for column in node["column_indexes"]):
            raise StatementError(f"SQL: this scan of table {table} cannot be split across workers")
        names = node["names"]
        columns = [
            "NULL" if column["index"] >= _ROW_ID else quoted(names[column["index"]])
            for column in node.get("column_indexes", [])
        ]
        kept = node.get("projection_ids") or range(len(columns))
        return Relation(tuple(columns[index] for index in kept), quoted(table))

    def _render_logical_projection(self, node: Node) -> Relation:
        child = self._child(node)
        if child.tail:
            # In one SELECT, so that the order is that of the result and not of a subquery.
            return replace(child, columns=self._all(node["expressions"], lambda index: child.columns[index]))
        source, refer = self._named(child)
        return Relation(self._all(node["expressions"], refer), source)

    def _render_logical_filter(self, node: Node) -> Relation:
        relation, refer = self._over(self._child(node))
        conditions = " AND ".join(self._all(node["expressions"], refer))
        kept = _mapped(relation.columns, node.get("projection_map"))
        return replace(relation, columns=kept, source=f"{relation.source} WHERE {conditions}")

    def _render_logical_order_by(self, node: Node) -> Relation:
        relation, refer = self._over(self._child(node))
        keys = ", ".join(self.order(order, refer) for order in node["orders"])
        return replace(
            relation, columns=_mapped(relation.columns, node.get("projection_map")), tail=f" ORDER BY {keys}"
        )

    def _render_logical_limit(self, node: Node) -> Relation:
        child = self._child(node)
        relation = child if child.tail and " LIMIT " not in child.tail else self._over(child)[0]
        return replace(relation, tail=f"{relation.tail}{limit_text(*limits(node))}")

    def _render_logical_distinct(self, node: Node) -> Relation:
        if node["distinct_type"] != "DISTINCT":
            raise StatementError("SQL: DISTINCT ON cannot be split across workers")
        relation, _ = self._over(self._child(node))
        targets = {target.get("index") for target in node["distinct_targets"] if target["type"] == "BOUND_REF"}
        if targets == set(range(len(relation.columns))):
            grouped = replace(relation, tail=f" GROUP BY {_ordinals(len(relation.columns))}")
            return self._over(grouped)[0]
        raise StatementError("SQL: DISTINCT over a collation cannot be split across workers")

    def _render_logical_aggregate_and_group_by(self, node: Node) -> Relation:
        if len(node.get("grouping_sets", [])) > 1 or node.get("grouping_functions"):
            raise StatementError("SQL: grouping sets cannot be split across workers")
        source, refer = self._named(self._child(node))
        groups = self._all(node.get("groups", []), refer)
        values = [self.aggregate(each, refer) for each in node.get("expressions", [])]
        by = f" GROUP BY {_ordinals(len(groups))}" if groups else ""
        if not groups and not values:
            raise StatementError("SQL: this grouping cannot be split across workers")
        return self._over(Relation((*groups, *values), source, by))[0]

    def _render_logical_cross_product(self, node: Node) -> Relation:
        left, right, _ = self._sides(node)
        return Relation((*left.columns, *right.columns), f"{left.source} CROSS JOIN {right.source}")

    def _render_logical_comparison_join(self, node: Node) -> Relation:
        left, right, refer = self._sides(node)
        width = len(left.columns)
        conditions = []
        for condition in node["conditions"]:
            if condition["comparison"] not in _COMPARISONS:
                conditions.append(self.expression(condition["left"], refer))
                continue
            sign = _COMPARISONS[condition["comparison"]]
            other = self.expression(condition["right"], lambda index: refer(width + index))
            conditions.append(f"({self.expression(condition['left'], refer)} {sign} {other})")
        return self._joined(node, left, right, conditions)

    def _render_logical_any_join(self, node: Node) -> Relation:
        left, right, refer = self._sides(node)
        return self._joined(node, left, right, [self.expression(node["condition"], refer)])

    def _sides(self, node: Node) -> tuple[Relation, Relation, Refer]:
        (left, left_refer), (right, right_refer) = (self._over(self.relation(child)) for child in children(node))
        width = len(left.columns)
        return left, right, lambda index: left_refer(index) if index < width else right_refer(index - width)

    def _joined(self, node: Node, left: Relation, right: Relation, conditions: Sequence[str]) -> Relation:
        kind, condition = node["join_type"], " AND ".join(conditions)
        left_columns = _mapped(left.columns, node.get("left_projection_map"))
        right_columns = _mapped(right.columns, node.get("right_projection_map"))
        if kind in _JOINS:
            return Relation(
                (*left_columns, *right_columns), f"{left.source} {_JOINS[kind]} {right.source} ON {condition}"
            )
        if kind in _HALF_JOINS:
            exists = f"{_HALF_JOINS[kind]} (SELECT 1 FROM {right.source} WHERE {condition})"
            return Relation(left_columns, f"{left.source} WHERE {exists}")
        if kind == "MARK":
            mark = self._mark(node, lambda index: left.columns[index], right)
            return Relation((*left_columns, mark), left.source)
        raise StatementError(f"SQL: {_spoken(kind)} joins, as of some subqueries, cannot be split across workers")

    def _mark(self, node: Node, left: Refer, right: Relation) -> str:
        """Return whether a row has a match: that of IN, which may be NULL, or that of EXISTS."""

        def of_right(index: int) -> str:
            return right.columns[index]

        signs = {condition["comparison"] for condition in node["conditions"]}
        pairs = [
            (self.expression(each["left"], left), self.expression(each["right"], of_right))
            for each in node["conditions"]
        ]
        if signs == {"COMPARE_NOT_DISTINCT_FROM"}:
            same = " AND ".join(f"{one} IS NOT DISTINCT FROM {other}" for one, other in pairs)
            return f"EXISTS (SELECT 1 FROM {right.source} WHERE {same})"
        if signs != {"COMPARE_EQUAL"} or len(pairs) != 1 or node.get("mark_types"):
            raise StatementError("SQL: this correlated subquery cannot be split across workers")
        ((value, member),) = pairs
        return f"({value} IN (SELECT {member} FROM {right.source}))"

    def _render_logical_materialized_cte(self, node: Node) -> Relation:
        definition, body = children(node)
        inner, name = self.relation(definition), f"cte{node['table_index']}"
        columns = tuple(f"c{index}" for index in range(len(inner.columns)))
        for use in operators(body):
            if use["type"] == CTE_REF and use["cte_index"] == node["table_index"]:
                self._given[id(use)] = Relation(columns, name)
        relation = self.relation(body)
        statement = f"(WITH {name} AS MATERIALIZED ({inner.sql}) {relation.sql})"
        return self._aliased(statement, len(relation.columns))

    def _render_logical_union(self, node: Node) -> Relation:
        sides = " UNION ALL ".join(f"({self.relation(child).sql})" for child in children(node))
        return self._aliased(f"({sides})", node["column_count"])

    def _aliased(self, statement: str, width: int) -> Relation:
        self._names += 1
        name = f"t{self._names}"
        return Relation(tuple(f"{name}.c{index}" for index in range(width)), f"{statement} AS {name}")

    # expressions

    def _all(self, nodes: Iterable[Node], refer: Refer) -> tuple[str, ...]:
        return tuple(self.expression(node, refer) for node in nodes)

    def expression(self, node: Node, refer: Refer) -> str:
        """Return an expression's SQL, in parentheses where it needs them."""
        match node["expression_class"]:
            case "BOUND_REF":
                return refer(node["index"])
            case "BOUND_CONSTANT":
                return constant(node["value"])
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
            case other:
                raise StatementError(f"SQL: {_spoken(other)} cannot be split across workers")

    def _operator(self, node: Node, refer: Refer) -> str:
        text = operator_text(node["type"], self._all(node["children"], refer))
        if text is None:
            raise StatementError(f"SQL: {_spoken(node['type'])} cannot be split across workers")
        return text

    def _function(self, node: Node, refer: Refer) -> str:
        arguments = self._all(node.get("children", []), refer)
        if node["type"] in _COMPARISONS:
            left, right = arguments
            return f"({left} {_COMPARISONS[node['type']]} {right})"
        if node["type"] == "OPERATOR_CAST":
            return self._cast(node, arguments[0])
        name = node["qname"]["path"][-1]
        if node["type"] != "BOUND_FUNCTION" or name not in _deterministic() or not _is_rebound(node):
            raise StatementError(f"SQL: function {name} cannot be split across workers")
        if any(is_zoned(type_of(each)) for each in (node, *node.get("children", []))):
            raise StatementError(f"SQL: function {name} over {ZONED} depends on each worker's time zone")
        if name == "struct_pack":
            members = (each["first"] for each in node["return_type"]["type_info"]["child_types"])
            arguments = tuple(f"{quoted(each)} := {text}" for each, text in zip(members, arguments, strict=True))
        return f"{quoted(name)}({', '.join(arguments)})"

    def _cast(self, node: Node, argument: str) -> str:
        (child,) = node["children"]
        kind = node["return_type"]
        if is_zoned(kind) != is_zoned(type_of(child)):
            raise StatementError(f"SQL: a cast to or from {ZONED} depends on each worker's time zone")
        word = "TRY_CAST" if node["function_data"]["try_cast"] else "CAST"
        return f"{word}({argument} AS {type_text(kind)})"

    def aggregate(self, node: Node, refer: Refer) -> str:
        """Return an aggregate with its filter; what depends on the order of rows is refused."""
        name = aggregate_name(node)
        is_known = name in ORDERLESS or (name == "first" and node.get("alias") == COLLATED_GROUP)
        if node.get("function_data") or orders_of(node) or not is_known:
            raise StatementError(f"SQL: aggregate {name} cannot be split across workers")
        arguments = ", ".join(self._all(node.get("children", []), refer))
        distinct = "DISTINCT " if node["aggregate_type"] == "DISTINCT" else ""
        call = "count(*)" if name == "count_star" else f"{quoted(name)}({distinct}{arguments})"
        return call + self.filter_of(node, refer)

    def filter_of(self, node: Node, refer: Refer, *more: str) -> str:
        """Return an aggregate's FILTER with further conditions, '' without any."""
        conditions = [*([self.expression(node["filter"], refer)] if node.get("filter") else []), *more]
        return f" FILTER (WHERE {' AND '.join(conditions)})" if conditions else ""

    def order(self, node: Node, refer: Refer) -> str:
        """Return a key of ORDER BY."""
        way = "DESC" if node["type"] == "DESCENDING" else "ASC"
        nulls = "NULLS FIRST" if node["null_order"].replace("_", " ") == "NULLS FIRST" else "NULLS LAST"
        return f"{self.expression(node['expression'], refer)} {way} {nulls}"


def operator_text(kind: str, arguments: Sequence[str]) -> str | None:
    """Return the SQL of an operator that all dialects write the same, None for another one."""
    first, *others = arguments
    match kind:
        case "OPERATOR_IS_NULL":
            return f"({first} IS NULL)"
        case "OPERATOR_IS_NOT_NULL":
            return f"({first} IS NOT NULL)"
        case "OPERATOR_NOT":
            return f"(NOT {first})"
        case "OPERATOR_COALESCE":
            return f"coalesce({', '.join(arguments)})"
        case "COMPARE_IN":
            return f"({first} IN ({', '.join(others)}))"
        case "COMPARE_NOT_IN":
            return f"({first} NOT IN ({', '.join(others)}))"
        case _:
            return None


def _is_rebound(node: Node) -> bool:
    """Return whether a function is bound to nothing but its arguments, or to what follows from them."""
    bound = node.get("function_data")
    return (
        not bound
        or bound.keys() == {"variable_return_type"}
        or (node["qname"]["path"][-1] in _ARITHMETIC and bound.keys() == {"check_overflow", "return_type", "arguments"})
    )


def aggregate_name(node: Node) -> str:
    """Return the name of an aggregate."""
    return str(node["qname"]["path"][-1])


def orders_of(node: Node) -> list[Node]:
    """Return the ORDER BY inside an aggregate."""
    orders: list[Node] = (node.get("order_bys") or {}).get("orders", [])
    return orders


def limits(node: Node) -> tuple[int | None, int]:
    """Return an operator's LIMIT, None without one, and OFFSET; StatementError unless they are numbers."""
    numbers = []
    for key in ("limit_val", "offset_val"):
        value = node[key]
        if value["type"] not in {"UNSET", "CONSTANT_VALUE"}:
            raise StatementError("SQL: LIMIT and OFFSET are split where they are numbers")
        numbers.append(value["constant_integer"] if value["type"] == "CONSTANT_VALUE" else None)
    return numbers[0], numbers[1] or 0


def limit_text(limit: int | None, offset: int) -> str:
    """Return LIMIT and OFFSET."""
    return ("" if limit is None else f" LIMIT {limit}") + (f" OFFSET {offset}" if offset else "")


def _mapped(columns: tuple[str, ...], kept: Sequence[int] | None) -> tuple[str, ...]:
    """Return the columns that an operator passes on: all without a map."""
    return columns if not kept else tuple(columns[index] for index in kept)


def _ordinals(number: int) -> str:
    return ", ".join(str(index + 1) for index in range(number))


@cache
def _deterministic() -> frozenset[str]:
    """Return DuckDB's own scalar functions whose every form depends on its arguments alone."""
    with duckdb.connect(":memory:") as connection:
        rows = connection.execute(
            "SELECT function_name FROM duckdb_functions() WHERE function_type = 'scalar' "
            "GROUP BY function_name HAVING bool_and(stability = 'CONSISTENT' AND NOT has_side_effects)"
        ).fetchall()
    return frozenset(row[0] for row in rows)


def _spoken(word: str) -> str:
    return word.removeprefix("LOGICAL_").removeprefix("BOUND_").removeprefix("OPERATOR_").replace("_", " ")
