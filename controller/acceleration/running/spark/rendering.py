"""Bound plans as Spark SQL: each operator becomes a part of a SELECT, whose columns are c0, c1, ...

A whitelist, like that of the split: an operator, expression, aggregate, function or type that is not named here is
refused with StatementError. Everything is rendered from the bound plan, so that Spark resolves no name of the
statement, casts nothing by itself, and decorrelates no subquery.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.acceleration.running.spark.expressions import COMPARISONS, Expressions, Refer, key_text
from controller.acceleration.running.spark.functions import raised, refused
from controller.acceleration.running.spark.nodes import (
    SET_OPERATIONS,
    check_keys,
    conjuncts,
    highest,
    is_not_ref,
    is_ref,
    width,
)
from controller.acceleration.running.spark.types import spark_type
from controller.acceleration.running.spark.windows import window
from controller.acceleration.running.statements.bound import CTE_REF, Node, children, operators, table_of
from controller.acceleration.running.statements.literals import type_of
from controller.acceleration.running.statements.rendering import aggregate_name, limits

_JOINS: Final = {"INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "OUTER": "FULL JOIN", "FULL": "FULL JOIN"}
_HALF_JOINS: Final = {"SEMI": "LEFT SEMI JOIN", "ANTI": "LEFT ANTI JOIN"}
_SAME: Final = "COMPARE_NOT_DISTINCT_FROM"
_TWO_VALUED: Final = frozenset({_SAME, "COMPARE_DISTINCT_FROM"})
_VIRTUAL: Final = 1 << 63
"""Columns from here on are the row's number, or no column at all."""
_SIMPLE: Final = re.compile(r"[a-z]+\d+\.c\d+")
_MOST_ROWS: Final = (1 << 31) - 1
"""Spark's maximum of LIMIT and OFFSET."""
MOST_TEXT: Final = 4 << 20
"""Maximum characters of a rendered statement."""
_SEVERAL: Final = (
    "More than one row returned by a subquery used as an expression - scalar subqueries can only return a single row."
)


@dataclass(frozen=True, slots=True)
class Relation:
    """Columns of a source under conditions; `tail` groups, orders or limits the rows."""

    columns: tuple[str, ...]
    source: str
    where: tuple[str, ...] = ()
    tail: str = ""
    is_joined: bool = False

    @property
    def sql(self) -> str:
        """The statement; its columns are c0, c1, ..."""
        columns = ", ".join(f"{text} AS c{index}" for index, text in enumerate(self.columns)) or "1 AS c0"
        return f"SELECT {columns} {self.rest}"

    @property
    def rest(self) -> str:
        """The statement from FROM on."""
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        text = f"FROM {self.source}{where}{self.tail}"
        if len(text) > MOST_TEXT:
            raise refused("a statement of this size")
        return text


class SparkRenderer:
    """Renders operators; `tables` collects the names of the tables that are read, by which their views count."""

    def __init__(self, expressions: Expressions) -> None:
        self.tables: list[str] = []
        self._expressions = expressions
        self._ctes: dict[int, tuple[str, int]] = {}
        self._names = 0

    def relation(self, node: Node) -> Relation:
        """Return an operator as a SELECT."""
        check_keys(node)
        if node["type"] in SET_OPERATIONS:
            return self._set_operation(node)
        render: Callable[[Node], Relation] = getattr(self, f"_render_{node['type'].lower()}")
        return render(node)

    # sources

    def _name(self) -> str:
        self._names += 1
        return f"t{self._names}"

    def _wrapped(self, sql: str, width: int) -> Relation:
        name = self._name()
        return Relation(tuple(f"{name}.c{index}" for index in range(width)), f"({sql}) AS {name}")

    def _plain(self, node: Node) -> Relation:
        """Return an operator whose columns are names, and whose rows are neither grouped nor limited."""
        return self._as_plain(self.relation(node))

    def _as_plain(self, relation: Relation) -> Relation:
        if relation.tail or not all(map(_SIMPLE.fullmatch, relation.columns)):
            return self._wrapped(relation.sql, len(relation.columns))
        return relation

    def _only(self, relation: Relation) -> Relation:
        """Return a relation that is one source without conditions, as the right side of a join has to be."""
        if relation.where:
            return self._wrapped(relation.sql, len(relation.columns))
        return replace(relation, source=f"({relation.source})", is_joined=False) if relation.is_joined else relation

    def _child(self, node: Node) -> Relation:
        return self._plain(children(node)[0])

    # operators

    def _render_logical_get(self, node: Node) -> Relation:
        table = table_of(node)
        if table is None:
            raise refused(f"table function {node['qname']['path'][-1]}")
        if node.get("table_filters") or any("child_indexes" in column for column in node["column_indexes"]):
            raise refused(f"this scan of table {table}")
        if table not in self.tables:
            self.tables.append(table)
        name = self._name()
        columns = []
        for column in node.get("column_indexes", []):
            if column["index"] >= _VIRTUAL:
                columns.append("NULL")
                continue
            spark_type(node["returned_types"][column["index"]])
            columns.append(f"{name}.c{column['index']}")
        kept = node.get("projection_ids") or range(len(columns))
        return Relation(tuple(columns[index] for index in kept), f"input{self.tables.index(table)} AS {name}")

    def _render_logical_dummy_scan(self, _node: Node) -> Relation:
        return self._wrapped("SELECT 1 AS c0", 1)

    def _render_logical_projection(self, node: Node) -> Relation:
        child = self.relation(children(node)[0])
        expressions: list[Node] = node["expressions"]
        is_selection = all(each["expression_class"] == "BOUND_REF" for each in expressions)
        # Rows keep their order only within one SELECT.
        is_ordered = " ORDER BY " in child.tail and all(map(_SIMPLE.fullmatch, child.columns))
        if not is_selection and not is_ordered:
            child = self._as_plain(child)
        return replace(child, columns=self._all(expressions, _refer(child)))

    def _render_logical_filter(self, node: Node) -> Relation:
        (below,) = children(node)
        conditions = [part for each in node["expressions"] for part in conjuncts(each)]
        relation = self._filtered(below, conditions)
        return replace(relation, columns=_mapped(relation.columns, node.get("projection_map")))

    def _filtered(self, below: Node, conditions: Sequence[Node]) -> Relation:
        """Return an operator's rows under conditions; a condition that is IN or EXISTS becomes a semi or anti join.

        IN that is not true need not be false: only EXISTS has an anti join.
        """
        mark = width(children(below)[0]) if below.get("join_type") == "MARK" else None
        if mark is None or below.get("left_projection_map"):
            return self._where(self._plain(below), conditions)
        signs = {condition["comparison"] for condition in below["conditions"]}
        is_exists = len(below.get("mark_types", ())) == len(below["conditions"]) and signs <= _TWO_VALUED
        marked = [each for each in conditions if is_ref(each, mark) or (is_exists and is_not_ref(each, mark))]
        if len(marked) != 1 or not signs <= COMPARISONS.keys():
            return self._where(self._plain(below), conditions)
        others = [each for each in conditions if each is not marked[0]]
        inner = [each for each in others if highest(each) < mark]
        left, right = self._as_plain(self._filtered(children(below)[0], inner)), self._plain(children(below)[1])
        right = self._only(right)
        is_semi = is_ref(marked[0], mark)
        on = " AND ".join(self._conditions(below, left, right))
        source = f"{left.source} {'LEFT SEMI JOIN' if is_semi else 'LEFT ANTI JOIN'} {right.source} ON {on}"
        joined = replace(left, columns=(*left.columns, "true" if is_semi else "false"), source=source, is_joined=True)
        return self._where(joined, [each for each in others if highest(each) >= mark])

    def _where(self, child: Relation, conditions: Sequence[Node]) -> Relation:
        return replace(child, where=(*child.where, *self._all(conditions, _refer(child))))

    def _render_logical_order_by(self, node: Node) -> Relation:
        child = self._child(node)
        keys = ", ".join(self._expressions.order(order, _refer(child)) for order in node["orders"])
        columns = _mapped(child.columns, node.get("projection_map"))
        return replace(child, columns=columns, tail=f" ORDER BY {keys}")

    def _render_logical_limit(self, node: Node) -> Relation:
        child = self.relation(children(node)[0])
        if child.tail and (" ORDER BY " not in child.tail or " LIMIT " in child.tail or " OFFSET " in child.tail):
            child = self._as_plain(child)
        limit, offset = limits(node)
        if max(limit or 0, offset) > _MOST_ROWS:
            raise refused("LIMIT or OFFSET of more than 2147483647 rows")
        tail = ("" if limit is None else f" LIMIT {limit}") + (f" OFFSET {offset}" if offset else "")
        return replace(child, tail=child.tail + tail)

    def _render_logical_distinct(self, node: Node) -> Relation:
        child = self._child(node)
        kinds = [type_of(target) for target in node["distinct_targets"]]
        targets = [self._key(target, _refer(child)) for target in node["distinct_targets"]]
        if node["distinct_type"] == "DISTINCT":
            indexes = {each.get("index") for each in node["distinct_targets"] if each["type"] == "BOUND_REF"}
            if indexes != set(range(len(child.columns))) or len(targets) != len(child.columns):
                raise refused("DISTINCT over a collation")
            by_index = {each["index"]: target for each, target in zip(node["distinct_targets"], targets, strict=True)}
            distinct = replace(child, columns=tuple(by_index[index] for index in range(len(targets))))
            return self._wrapped(distinct.sql.replace("SELECT", "SELECT DISTINCT", 1), len(targets))
        orders = (node.get("order_by") or {}).get("orders", [])
        if len(orders) <= len(kinds):
            raise refused("DISTINCT ON without an order of each group")
        keys = ", ".join(self._expressions.order(order, _refer(child)) for order in orders)
        number = f"row_number() OVER (PARTITION BY {', '.join(targets)} ORDER BY {keys})"
        numbered = self._wrapped(replace(child, columns=(*child.columns, number)).sql, len(child.columns) + 1)
        return replace(numbered, columns=numbered.columns[:-1], where=(f"({numbered.columns[-1]} = 1)",))

    def _render_logical_window(self, node: Node) -> Relation:
        child = self._child(node)
        values = tuple(window(self._expressions, each, _refer(child)) for each in node["expressions"])
        return self._wrapped(replace(child, columns=(*child.columns, *values)).sql, len(child.columns) + len(values))

    # aggregates

    def _render_logical_aggregate_and_group_by(self, node: Node) -> Relation:
        groups, aggregates = node.get("groups", []), node.get("expressions", [])
        sets, functions = node.get("grouping_sets", []), node.get("grouping_functions", [])
        if not groups and not aggregates:
            raise refused("this grouping")
        child = self._child(node)
        keys = tuple(self._key(each, _refer(child)) for each in groups)
        below = replace(child, columns=(*child.columns, *keys))
        if len(sets) > 1 or functions:
            return self._grouping_sets(below, node, len(child.columns))
        if groups:
            below = self._wrapped(below.sql, len(below.columns))
        names = below.columns[len(child.columns) :]
        by = f" GROUP BY {', '.join(names)}" if names else ""
        return self._as_plain(replace(below, columns=(*names, *self._values(node, below)), tail=by))

    def _values(self, node: Node, child: Relation) -> tuple[str, ...]:
        aggregates = node.get("expressions", [])
        # A scalar subquery's value: an expression above checks that there is at most one row.
        is_scalar = not node.get("groups") and [aggregate_name(each) for each in aggregates] == ["first", "count_star"]
        return tuple(
            f"first({self._expressions.expression(each['children'][0], _refer(child))})"
            if is_scalar and each is aggregates[0]
            else self._expressions.aggregate(each, _refer(child))
            for each in aggregates
        )

    def _grouping_sets(self, below: Relation, node: Node, width: int) -> Relation:
        """Return one aggregation for each set: over no rows that of the empty set has a row, as in DuckDB.

        `below` has the keys after this many columns.
        """
        sets: list[list[int]] = node.get("grouping_sets", [])
        functions: list[list[int]] = node.get("grouping_functions", [])
        kinds = [type_of(each) for each in node.get("groups", [])]
        parts, rows = [], f"{self._name()}rows"
        source = Relation(tuple(f"{rows}.c{index}" for index in range(len(below.columns))), rows)
        names, values = source.columns[width:], self._values(node, source)
        for held in sets or [list(range(len(names)))]:
            keys = tuple(
                name if index in held else f"CAST(NULL AS {spark_type(kind)})"
                for index, (name, kind) in enumerate(zip(names, kinds, strict=True))
            )
            numbers = (
                sum((group not in held) << bit for bit, group in enumerate(reversed(function)))
                for function in functions
            )
            marks = tuple(f"CAST({number} AS BIGINT)" for number in numbers)
            by = f" GROUP BY {', '.join(names[index] for index in held)}" if held else ""
            parts.append(f"({replace(source, columns=(*keys, *values, *marks), tail=by).sql})")
        selects = " UNION ALL ".join(parts)
        return self._wrapped(f"WITH {rows} AS ({below.sql}) {selects}", len(names) + len(values) + len(functions))

    def _key(self, node: Node, refer: Refer) -> str:
        return key_text(self._expressions.expression(node, refer), type_of(node))

    # joins

    def _render_logical_cross_product(self, node: Node) -> Relation:
        left, right = (self._plain(child) for child in children(node))
        return _crossed(left, right)

    def _render_logical_comparison_join(self, node: Node) -> Relation:
        left, right = (self._plain(child) for child in children(node))
        if node["join_type"] == "MARK":
            return self._marked(node, left, right)
        if node["join_type"] == "SINGLE":
            return self._single(node, left, right)
        return self._joined(node, left, right, lambda one, other: self._conditions(node, one, other))

    def _render_logical_any_join(self, node: Node) -> Relation:
        left, right = (self._plain(child) for child in children(node))

        def condition(one: Relation, other: Relation) -> list[str]:
            both = (*one.columns, *other.columns)
            return [self._expressions.expression(node["condition"], lambda index: both[index])]

        return self._joined(node, left, right, condition)

    def _conditions(self, node: Node, left: Relation, right: Relation) -> list[str]:
        texts = []
        for condition in node["conditions"]:
            if condition["comparison"] not in COMPARISONS:
                both = (*left.columns, *right.columns)
                texts.append(self._expressions.expression(condition["left"], both.__getitem__))
                continue
            one = self._expressions.expression(condition["left"], _refer(left))
            other = self._expressions.expression(condition["right"], _refer(right))
            texts.append(COMPARISONS[condition["comparison"]].format(one, other))
        return texts

    def _joined(
        self, node: Node, left: Relation, right: Relation, conditions: Callable[[Relation, Relation], list[str]]
    ) -> Relation:
        kind = node["join_type"]
        if kind == "INNER":
            crossed = _crossed(left, right)
            where = (*crossed.where, *conditions(left, right))
            return replace(crossed, columns=_columns(node, left, right), where=where)
        if kind not in {*_JOINS, *_HALF_JOINS}:
            raise refused(f"{kind} joins")
        right = self._only(right)
        if kind in {"RIGHT", "OUTER", "FULL"} and left.where:
            left = self._wrapped(left.sql, len(left.columns))
        word = _JOINS.get(kind) or _HALF_JOINS[kind]
        columns = _columns(node, left, right) if kind in _JOINS else _mapped(
            left.columns, node.get("left_projection_map")
        )  # fmt: skip
        source = f"{left.source} {word} {right.source} ON {' AND '.join(conditions(left, right))}"
        return replace(left, columns=columns, source=source, is_joined=True)

    def _marked(self, node: Node, left: Relation, right: Relation) -> Relation:
        """Add whether a row has a match: that of EXISTS, or that of IN, which may be NULL.

        The right side's distinct matches are joined, and for IN of each correlation whether it has rows and NULLs.
        """
        conditions = node["conditions"]
        same = [each for each in conditions if each["comparison"] == _SAME]
        values = [each for each in conditions if each["comparison"] == "COMPARE_EQUAL"]
        if len(same) + len(values) != len(conditions) or len(values) > 1:
            raise refused("a subquery that is compared by ANY or ALL")
        left = self._as_plain(left)
        ours = [self._key(each["left"], _refer(left)) for each in (*same, *values)]
        theirs = tuple(self._key(each["right"], _refer(right)) for each in (*same, *values))
        keys = self._as_plain(replace(right, columns=theirs))
        names = keys.columns
        matches = self._wrapped(
            replace(keys, columns=(*names, "1"), tail=f" GROUP BY {', '.join(names)}").sql, len(names) + 1
        )
        on = [f"({one} <=> {other})" for one, other in zip(ours, matches.columns, strict=False)]
        if values:
            on.append(f"({matches.columns[-2]} IS NOT NULL)")
        source = f"{left.source} LEFT JOIN {matches.source} ON {' AND '.join(on)}"
        mark = f"({matches.columns[-1]} IS NOT NULL)"
        if values:
            by = f" GROUP BY {', '.join(names[:-1])}" if same else ""
            missing = f"bool_or({names[-1]} IS NULL)"
            sets = self._wrapped(replace(keys, columns=(*names[:-1], "count(*)", missing), tail=by).sql, len(names) + 1)
            pairs = [f"({one} <=> {other})" for one, other in zip(ours[:-1], sets.columns, strict=False)]
            source += f" LEFT JOIN {sets.source} ON {' AND '.join(pairs) or 'true'}"
            number, has_null = sets.columns[-2:]
            mark = (
                f"(CASE WHEN {mark} THEN true WHEN coalesce({number}, 0) = 0 THEN false "
                f"WHEN {ours[-1]} IS NULL OR {has_null} THEN NULL ELSE false END)"
            )
        columns = (*_mapped(left.columns, node.get("left_projection_map")), mark)
        return replace(left, columns=columns, source=source, is_joined=True)

    def _single(self, node: Node, left: Relation, right: Relation) -> Relation:
        """Join at most one row of a scalar subquery to each row: several are an error, as in DuckDB."""
        if {each["comparison"] for each in node["conditions"]} - {_SAME, "COMPARE_EQUAL"}:
            raise refused("this correlated subquery")
        keys = tuple(self._key(each["right"], _refer(right)) for each in node["conditions"])
        kept = tuple(range(len(right.columns)))
        wide = self._as_plain(replace(right, columns=(*keys, *right.columns)))
        names, values = wide.columns[: len(keys)], wide.columns[len(keys) :]
        # In the aggregate, where Spark computes it for every group: a condition might be skipped after another one.
        several = f"CASE WHEN count(*) > 1 THEN {raised(_SEVERAL, 'BOOLEAN')} END"
        grouped = replace(
            wide,
            columns=(*names, *(f"first({value})" for value in values), several),
            tail=f" GROUP BY {', '.join(names)}",
        )
        single = self._wrapped(grouped.sql, len(names) + len(kept) + 1)
        ours = [self._expressions.expression(each["left"], _refer(left)) for each in node["conditions"]]
        on = " AND ".join(
            COMPARISONS[each["comparison"]].format(one, other)
            for each, one, other in zip(node["conditions"], ours, single.columns, strict=False)
        )
        # Read, or Spark would not compute it.
        check = f"({single.columns[-1]} IS NULL)"
        right_columns = _mapped(single.columns[len(names) : -1], node.get("right_projection_map"))
        left_columns = _mapped(left.columns, node.get("left_projection_map"))
        source = f"{left.source} LEFT JOIN {single.source} ON {on}"
        return replace(
            left, columns=(*left_columns, *right_columns), source=source, where=(*left.where, check), is_joined=True
        )

    # several selects

    def _set_operation(self, node: Node) -> Relation:
        word = SET_OPERATIONS[node["type"]]
        if node["type"] != "LOGICAL_UNION" and node["setop_all"]:
            word += " ALL"
        sides = [self._plain(child) for child in children(node)]
        if node["type"] != "LOGICAL_UNION":
            kinds = _kinds(children(node)[0])
            sides = [replace(side, columns=tuple(map(key_text, side.columns, kinds))) for side in sides]
        return self._wrapped(f" {word} ".join(f"({side.sql})" for side in sides), node["column_count"])

    def _render_logical_materialized_cte(self, node: Node) -> Relation:
        definition, body = children(node)
        inner, name = self._plain(definition), f"cte{node['table_index']}"
        self._ctes[node["table_index"]] = (name, len(inner.columns))
        relation = self.relation(body)
        if not any(each["type"] == CTE_REF and each["cte_index"] == node["table_index"] for each in operators(body)):
            return relation
        return self._wrapped(f"WITH {name} AS ({inner.sql}) {relation.sql}", len(relation.columns))

    def _render_logical_cte_ref(self, node: Node) -> Relation:
        if node["cte_index"] not in self._ctes:
            raise refused("recursive WITH")
        held, width = self._ctes[node["cte_index"]]
        name = self._name()
        return Relation(tuple(f"{name}.c{index}" for index in range(width)), f"{held} AS {name}")

    def _all(self, nodes: Iterable[Node], refer: Refer) -> tuple[str, ...]:
        return tuple(self._expressions.expression(node, refer) for node in nodes)


def _refer(relation: Relation) -> Refer:
    return relation.columns.__getitem__


def _mapped(columns: tuple[str, ...], kept: Sequence[int] | None) -> tuple[str, ...]:
    """Return the columns that an operator passes on: all without a map."""
    return columns if not kept else tuple(columns[index] for index in kept)


def _columns(node: Node, left: Relation, right: Relation) -> tuple[str, ...]:
    return (
        *_mapped(left.columns, node.get("left_projection_map")),
        *_mapped(right.columns, node.get("right_projection_map")),
    )


def _crossed(left: Relation, right: Relation) -> Relation:
    source = f"({right.source})" if right.is_joined else right.source
    return Relation(
        (*left.columns, *right.columns),
        f"{left.source} CROSS JOIN {source}",
        (*left.where, *right.where),
        is_joined=True,
    )


def _kinds(node: Node) -> list[Node]:
    """Return the types of a side of a set operation, which is a projection in a bound plan."""
    while node["type"] in {"LOGICAL_DISTINCT", "LOGICAL_ORDER_BY", "LOGICAL_LIMIT", "LOGICAL_FILTER"}:
        (node,) = children(node)
    if node["type"] in SET_OPERATIONS:
        return _kinds(children(node)[0])
    if node["type"] != "LOGICAL_PROJECTION":
        raise refused("this set operation")
    return [type_of(each) for each in node["expressions"]]
