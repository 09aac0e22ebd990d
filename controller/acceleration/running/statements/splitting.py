"""Splits a statement into one for each shard, one that merges partial results, and one that finishes at the root.

Decided on the bound plan. From the scan of the sharded table upwards, operators *distribute* as long as their rows over
all shards together are their rows over the whole table: filters, projections, joins with whole tables that keep no row
of the other side. The first operator that does not is the *boundary*; what shards send, and how it is merged, follows
from its kind. Everything above runs at the root, over merged rows and whole tables.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import (
    Node,
    bound_plan,
    children,
    inlined,
    operators,
    scans,
    table_of,
)
from controller.acceleration.running.statements.literals import is_number, quoted, type_of
from controller.acceleration.running.statements.rendering import (
    COLLATED_GROUP,
    ORDERLESS,
    Refer,
    Relation,
    Renderer,
    aggregate_name,
    limit_text,
    limits,
    orders_of,
)
from controller.acceleration.running.values import PARTS, Split

_AGGREGATE: Final = "LOGICAL_AGGREGATE_AND_GROUP_BY"
_JOIN_SIDES: Final = {"INNER": (0, 1), "LEFT": (0,), "RIGHT": (1,), "SEMI": (0,), "ANTI": (0,), "MARK": (0,)}
"""Sides of a join that distribute: every row of the other side is on all shards."""
_SAME: Final = ("sum", "sum_no_overflow", "min", "max", "bool_and", "bool_or", "bit_and", "bit_or", "bit_xor")
_MERGED_BY: Final = (
    dict.fromkeys(("count", "count_star"), "coalesce(sum({}), 0)")
    | {name: f"{name}({{}})" for name in _SAME}
    | {"count_if": "sum({})"}
)
"""Aggregates of one value, and what merges their partial results; over no rows `count` is 0 and `count_if` is NULL."""
_ADDED: Final = frozenset({"sum()", "coalesce(sum(), 0)"})
_ORDER_KEEPING: Final = {"LOGICAL_GET", "LOGICAL_PROJECTION", "LOGICAL_FILTER"}
_EXTREMES: Final = {"arg_min": "min", "arg_max": "max"}
LOSSLESS: Final = "SET arrow_lossless_conversion = true"
"""Makes Arrow tables keep the types that only DuckDB has, such as UUID: for input tables."""
_NOT_CARRIED: Final = re.compile(r"\b(BIT|UHUGEINT|TIME WITH TIME ZONE|UNION|VARIANT|GEOMETRY)\b")
"""Types whose values Arrow does not bring back."""


def split_statement(sql: str, tables: Mapping[str, pa.Table], sharded: str | None = None) -> Split:
    """Return a statement in three parts; `sharded` is the table split over workers, by default the largest read once.

    `tables` are those that it reads; only names, types and sizes matter. Raise StatementError if it cannot be split.
    """
    with Schema(tables) as schema:
        return schema.split(sql, sharded)


class Schema:
    """Tables without rows, to which statements are bound; use it as a context manager."""

    def __init__(self, tables: Mapping[str, pa.Table], sizes: Mapping[str, int] | None = None) -> None:
        """Create them in DuckDB: only scans of its own tables appear in a serialized plan.

        `sizes` are their bytes where the tables here have not all rows.
        """
        self._sizes = {name: table.nbytes for name, table in tables.items()} | dict(sizes or {})
        # A statement may name files: no bind of it reads them.
        self.connection = duckdb.connect(
            ":memory:", config={"python_enable_replacements": "false", "enable_external_access": "false"}
        )
        for name, table in tables.items():
            self.connection.register("_arriving", table.slice(0, 0))
            try:
                self.connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM _arriving")
            except duckdb.Error as error:
                raise StatementError(f"table {name}: {str(error).splitlines()[0]}") from None
            self.connection.unregister("_arriving")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def split(self, sql: str, sharded: str | None = None) -> Split:
        """Return a statement in three parts, as `split_statement` does."""
        plan = bound_plan(self.connection, sql)
        name = self._sharded(plan, sharded)
        plan = inlined(plan, name)
        if (number := scans(plan, name)) != 1:
            raise StatementError(
                f"SQL: table {name} is in parts, and is read {number} times by the statement: once is possible"
            )
        columns = columns_of(self.connection, sql)
        split = _Splitter(self.connection, plan, columns).split(name)
        _bind(self.connection, split, columns)
        return split

    def _sharded(self, plan: Node, wanted: str | None) -> str:
        """Return the name of the sharded table: the wanted one, or the largest of those that the plan reads once."""
        names = Counter(name for operator in operators(plan) if (name := table_of(operator)) is not None)
        if not names:
            raise StatementError("SQL: the statement reads no table")
        if wanted is None:
            return max(names, key=lambda name: (names[name] == 1, self._sizes[name]))
        # Names are case-insensitive, as in DuckDB.
        return next((name for name in self._sizes if name.lower() == wanted.lower()), wanted)


def columns_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[str, str]]:
    """Return names and types of a statement's columns, as DuckDB binds it, without executing it."""
    try:
        return [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
    except duckdb.Error as error:
        raise StatementError(f"SQL: {str(error).splitlines()[0]}") from None


def _bind(connection: duckdb.DuckDBPyConnection, split: Split, columns: list[tuple[str, str]]) -> None:
    """Bind all three parts on empty tables; raise StatementError unless they fit together and to the statement."""
    try:
        partial = connection.sql(split.partial).to_arrow_table()
        connection.register(PARTS, partial)
        merged = connection.sql(split.merge).to_arrow_table()
        kinds = columns_of(connection, split.final)
    except duckdb.Error as error:
        raise StatementError(
            f"SQL: the statement cannot be split across workers: {str(error).splitlines()[0]}"
        ) from None
    finally:
        connection.unregister(PARTS)
    if partial.schema != merged.schema or [kind for _, kind in kinds] != [kind for _, kind in columns]:
        raise StatementError("SQL: the statement cannot be split across workers: its types would change")


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of partial results: its SQL on a shard, and over partial results of its name."""

    partial: str
    merge: Callable[[str], str]

    @property
    def is_sum(self) -> bool:
        """True if partial results are added up."""
        return self.merge("") in _ADDED


class _Splitter:
    """Splits one plan."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, plan: Node, columns: list[tuple[str, str]]) -> None:
        """`columns` are names and types of the result."""
        self._connection, self._plan, self._columns = connection, plan, columns
        self._renderer = Renderer()

    def split(self, sharded: str) -> Split:
        """Return the plan in three parts."""
        path = _path(self._plan, sharded)
        at = 0
        while at + 1 < len(path) and _distributes(path[at + 1], path[at]):
            at += 1
        inner = path[at]
        boundary = path[at + 1] if at + 1 < len(path) else None
        kind = "" if boundary is None else boundary["type"]
        if kind == _AGGREGATE:
            assert boundary is not None
            return self._grouped(boundary, sharded)
        if kind == "LOGICAL_DISTINCT":
            assert boundary is not None
            distinct = self._renderer.relation(boundary)
            return self._rows(distinct, boundary, sharded, distinct=True)
        rows = self._renderer.relation(inner)
        if boundary is not None and kind == "LOGICAL_LIMIT":
            limit, offset = limits(boundary)
            return self._rows(rows, inner, sharded, top=_top("", limit, offset))
        if boundary is not None and kind == "LOGICAL_ORDER_BY":
            above = path[at + 2] if at + 2 < len(path) else None
            limit, offset = limits(above) if above is not None and above["type"] == "LOGICAL_LIMIT" else (None, 0)
            if limit is not None:
                keys = ", ".join(self._renderer.order(order, lambda index: f"c{index}") for order in boundary["orders"])
                return self._rows(rows, inner, sharded, top=_top(f" ORDER BY {keys}", limit, offset))
        return self._rows(rows, inner, sharded)

    def _rows(self, rows: Relation, replaced: Node, sharded: str, *, top: str = "", distinct: bool = False) -> Split:
        """Send rows of shards, all or the first ones; `replaced` is the operator whose rows they are."""
        partial = f"SELECT * FROM ({rows.sql}){top}"
        parts, kinds = self._parts(partial)
        by = _by(len(kinds)) if distinct else ""
        names = ", ".join(kinds)
        merge = f"SELECT {names} FROM {parts}{by}{top}"
        final = self._final(replaced, Relation(tuple(kinds), parts))
        return Split(partial=partial, merge=merge, final=final, sharded=sharded, grows=not (top or distinct))

    def _parts(self, partial: str) -> tuple[str, dict[str, str]]:
        """Return partial results as a source with the types of the shards, and these types by column.

        Arrow has fewer types than DuckDB: an enum arrives as text, for example.
        """
        kinds = dict(columns_of(self._connection, partial))
        if lost := next((kind for kind in kinds.values() if _NOT_CARRIED.search(kind)), None):
            raise StatementError(f"SQL: values of type {lost} cannot be sent between workers")
        columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
        return f"(SELECT {columns} FROM {PARTS})", kinds

    def _final(self, replaced: Node, merged: Relation) -> str:
        """Return what the root does: all above an operator, over its merged rows, with the statement's names."""
        relation = Renderer({id(replaced): merged}).relation(self._plan)
        columns = ", ".join(
            f"CAST({text} AS {kind}) AS {quoted(name)}"
            for text, (name, kind) in zip(relation.columns, self._columns, strict=True)
        )
        return f"SELECT {columns} FROM {relation.source}{relation.tail}"

    # groups

    def _grouped(self, node: Node, sharded: str) -> Split:
        """Send aggregates by group; with DISTINCT ones by group and value, which the root then counts or adds up."""
        if len(node.get("grouping_sets", [])) > 1 or node.get("grouping_functions"):
            raise StatementError("SQL: grouping sets cannot be split across workers")
        aggregates, groups = node.get("expressions", []), node.get("groups", [])
        (child,) = children(node)
        # They keep the first of equal rows, and a join's rows come in an order that depends on the sizes of its sides.
        ordered = sorted({aggregate_name(each) for each in aggregates} & {*_EXTREMES, "first"})
        if ordered and not _keeps_order(child):
            raise StatementError(f"SQL: {ordered[0]}, or a collation, over a join cannot be split across workers")
        rows, refer = self._renderer.relation(child), _referring("t")
        keys = [self._renderer.expression(each, refer) for each in (*groups, *_distinct_values(aggregates))]
        group_names, key_names = ([f"c{index}" for index in range(len(each))] for each in (groups, keys))
        columns: list[_Column] = []
        texts, distinct = list[str](), list[str]()
        for each in aggregates:
            if each["aggregate_type"] == "DISTINCT":
                arguments = ", ".join(key_names[len(groups) :])
                # Rows of a group then come ordered by value, and the first of equal ones is another one.
                if not {aggregate_name(other) for other in aggregates}.isdisjoint({*_EXTREMES, "first"}):
                    raise StatementError(
                        "SQL: DISTINCT aggregates beside arg_min, arg_max or a collation cannot be split across workers"
                    )
                distinct.append(f"{quoted(aggregate_name(each))}(DISTINCT {arguments}) AS d{len(distinct)}")
                texts.append(f"d{len(distinct) - 1}")
            else:
                texts.append(self._value(each, refer, len(keys), columns))
        selected = ", ".join(
            f"{text} AS c{index}" for index, text in enumerate([*keys, *(column.partial for column in columns)])
        )
        partial = f"SELECT {selected} FROM ({rows.sql}) AS t{_by(len(keys))}"
        parts, kinds = self._parts(partial)
        merged = [
            f"CAST({column.merge(name)} AS {kinds[name]}) AS {name}"
            for name, column in zip(list(kinds)[len(keys) :], columns, strict=True)
        ]
        merge = f"SELECT {', '.join([*key_names, *merged])} FROM {parts}{_by(len(keys))}"
        if distinct:
            parts = f"(SELECT {', '.join([*group_names, *merged, *distinct])} FROM {parts}{_by(len(groups))})"
        final = self._final(node, Relation((*group_names, *texts), parts))
        sums = len(columns) if not distinct and all(column.is_sum for column in columns) else 0
        return Split(partial=partial, merge=merge, final=final, sharded=sharded, grows=False, sums=sums)

    def _value(self, node: Node, refer: Refer, groups: int, columns: list[_Column]) -> str:
        """Return an aggregate over merged columns; what it needs is added to `columns`."""
        name, arguments = aggregate_name(node), node.get("children", [])

        def added(partial: str, merge: Callable[[str], str]) -> str:
            columns.append(_Column(partial, merge))
            return f"c{groups + len(columns) - 1}"

        own = self._renderer.aggregate(node, refer)
        if name in _MERGED_BY and len(arguments) == (0 if name == "count_star" else 1):
            return added(own, _MERGED_BY[name].format)
        if name == "avg" and len(arguments) == 1 and _is_averaged(node):
            text, where = self._renderer.expression(arguments[0], refer), self._renderer.filter_of(node, refer)
            total = added(f"sum({text}){where}", lambda column: f"sum({column})")
            count = added(f"count({text}){where}", _MERGED_BY["count"].format)
            return f"(CAST({total} AS DOUBLE) / {count})"
        if name in _EXTREMES and len(arguments) == 2:
            text, key = (self._renderer.expression(each, refer) for each in arguments)
            extreme = _EXTREMES[name]
            where = self._renderer.filter_of(node, refer, f"{text} IS NOT NULL")
            at = f"c{groups + len(columns) + 1}"
            value = added(own, lambda column: f"{name}({column}, {at})")
            added(f"{extreme}({key}){where}", lambda column: f"{extreme}({column})")
            return value
        if name == "first" and node.get("alias") == COLLATED_GROUP:
            return added(own, lambda column: f"first({column})")
        raise StatementError(f"SQL: {name} cannot be split across workers: no merge of partial results is the same")


def _distinct_values(aggregates: Sequence[Node]) -> list[Node]:
    """Return what DISTINCT aggregates are of: the same arguments in all of them."""
    distinct = [each for each in aggregates if each["aggregate_type"] == "DISTINCT"]
    if not distinct:
        return []
    name = aggregate_name(distinct[0])
    if any(each.get("filter") or orders_of(each) or aggregate_name(each) not in ORDERLESS for each in distinct):
        raise StatementError(f"SQL: {name}(DISTINCT ...) with FILTER or an order cannot be split across workers")
    if len({str(_bare(each.get("children"))) for each in distinct}) > 1:
        raise StatementError("SQL: DISTINCT aggregates of several values cannot be split across workers")
    values: list[Node] = distinct[0]["children"]
    return values


def _by(number: int) -> str:
    """Return GROUP BY over the first columns."""
    return f" GROUP BY {', '.join(str(index + 1) for index in range(number))}" if number else ""


def _path(plan: Node, sharded: str) -> list[Node]:
    """Return the operators from the scan of the sharded table up to the root."""
    if table_of(plan) == sharded:
        return [plan]
    child = next(child for child in children(plan) if scans(child, sharded))
    return [*_path(child, sharded), plan]


def _keeps_order(plan: Node) -> bool:
    """Return whether rows come in the order of the scanned table."""
    return plan["type"] in _ORDER_KEEPING and all(map(_keeps_order, children(plan)))


def _distributes(parent: Node, child: Node) -> bool:
    """Return whether an operator's rows over all shards of a child are its rows over the whole child."""
    match parent["type"]:
        case "LOGICAL_PROJECTION" | "LOGICAL_FILTER" | "LOGICAL_CROSS_PRODUCT":
            return True
        case "LOGICAL_COMPARISON_JOIN" | "LOGICAL_ANY_JOIN":
            side = next(index for index, each in enumerate(children(parent)) if each is child)
            return side in _JOIN_SIDES.get(parent["join_type"], ())
        case _:
            return False


def _is_averaged(node: Node) -> bool:
    """Return whether an average is that of numbers, whose sum and count are exact or floating point as well."""
    kind = type_of(node["children"][0])
    return node["return_type"]["id"] == "DOUBLE" and (kind["id"] in {"FLOAT", "DOUBLE"} or is_number(kind))


def _top(order: str, limit: int | None, offset: int) -> str:
    """Return what keeps of each part as many rows as the root may need, '' for all."""
    return "" if limit is None else order + limit_text(limit + offset, 0)


def _referring(table: str) -> Refer:
    return lambda index: f"{table}.c{index}"


def _bare(node: object) -> object:
    """Return an expression without its place in the text, so that equal ones are equal."""
    if isinstance(node, dict):
        return {name: _bare(child) for name, child in node.items() if name not in {"alias", *_PLACES}}
    return [_bare(child) for child in node] if isinstance(node, Sequence) and not isinstance(node, str) else node


_PLACES: Final = ("query_location", "query_location_length")
