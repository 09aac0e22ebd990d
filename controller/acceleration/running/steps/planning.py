"""The operator graph of a split statement: its steps on the shards and at the root, with the sizes of their rows.

Sizes are counted on a sample of the data where its files can be read, and estimated by DuckDB from the declared sizes
of tables elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, Self

import duckdb
import pyarrow as pa

from controller.acceleration.plans import SUMS
from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.statements.bound import Node, bound_plan, inlined, scans
from controller.acceleration.running.statements.literals import quoted
from controller.acceleration.running.statements.rendering import Renderer
from controller.acceleration.running.statements.splitting import LOSSLESS
from controller.acceleration.running.steps.naming import FINAL, Step, formulas_of, steps_of
from controller.acceleration.running.steps.pushing import AGGREGATE, pushed
from controller.acceleration.running.values import PARTS, Split
from controller.cluster.operators import Flow, Operator, OperatorGraph, work_of
from controller.cluster.operators.sql import SqlPlanner, SqlTable
from controller.cluster.operators.sql.tables import width_of

MOST_SAMPLED: Final = 100_000
"""Rows of the sharded table in a sample: some ten milliseconds a step."""
_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"})
_MOST_ROWS: Final = 1 << 53


class Sizes(Protocol):
    """Counts or estimates rows of the whole data."""

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return a connection in which the statement's tables exist, to bind its plan."""

    def rows(self, node: Node) -> int:
        """Return how many rows an operator yields."""

    def merged(self, split: Split) -> None:
        """Make the merged partial results available as a table, for the steps at the root."""


@dataclass(frozen=True, slots=True)
class PlannedStatement:
    """A split statement with its operators, named as when it runs; `aggregates` are their functions, by operator."""

    split: Split
    graph: OperatorGraph
    aggregates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def plan_statement(split: Split, sizes: Sizes, name: str = "query") -> PlannedStatement:
    """Return a split statement's operators with their sizes over the whole data, as one machine would have them."""
    builder = _Builder(sizes)
    last = builder.add(split.partial, "", ())
    if split.sums and len(last) == 1 and _are_whole(split, sizes):
        builder.add_size(last[0], SUMS, split.sums)
    sizes.merged(split)
    builder.add(split.final, FINAL, last)
    read = {flow.src for flow in builder.flows}
    operators = (
        operator if operator.name in read else replace(operator, output_bytes=_written(operator))
        for operator in builder.operators
    )
    graph = OperatorGraph(name, tuple(operators), tuple(builder.flows), "sql")
    return PlannedStatement(split, graph, builder.aggregates)


def _are_whole(split: Split, sizes: Sizes) -> bool:
    """Return whether a statement's partial sums are whole numbers, which switches add up."""
    kinds = [str(row[1]) for row in sizes.connection().execute(f"DESCRIBE {split.partial}").fetchall()]
    return all(kind in _WHOLE for kind in kinds[-split.sums :])


def planned_steps(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Node, tuple[Step, ...]]:
    """Return the plan of one part of a split statement, its conditions pushed down, and its steps."""
    # No table is in parts here: a common table expression stands wherever it is read.
    plan = pushed(inlined(bound_plan(connection, sql), ""))
    return plan, steps_of(plan)


def _written(operator: Operator) -> int:
    work = work_of(operator)
    return 0 if work is None else min(work.written_bytes, _MOST_ROWS)


class _Builder:
    def __init__(self, sizes: Sizes) -> None:
        self.operators: list[Operator] = []
        self.flows: list[Flow] = []
        self.aggregates: dict[str, tuple[str, ...]] = {}
        self._sizes = sizes
        self._rows: dict[int, int] = {}

    def add(self, sql: str, prefix: str, feeders: Sequence[str]) -> tuple[str, ...]:
        """Add the steps of one part of a statement; return those whose rows are its result."""
        plan, steps = planned_steps(self._sizes.connection(), sql)
        self._rows = {}
        by_node = {id(step.node): prefix + step.name for step in steps}
        for step in steps:
            self._add(step, prefix, by_node, feeders)
        return tuple(_nearest(plan, by_node)) or tuple(feeders)

    def add_size(self, name: str, size: str, value: int) -> None:
        """Add a size to an operator."""
        at = next(index for index, operator in enumerate(self.operators) if operator.name == name)
        shape = tuple(sorted((*self.operators[at].shape, (size, value))))
        self.operators[at] = replace(self.operators[at], shape=shape)

    def _add(self, step: Step, prefix: str, by_node: Mapping[int, str], feeders: Sequence[str]) -> None:
        name = prefix + step.name
        rows, many = [self._rows_of(node) for node in step.reads], self._rows_of(step.node)
        widths = [self._width(node) for node in step.reads]
        shape = _shape(step, rows, widths, many, self._width(step.node))
        outside = 0
        for node, count, width in zip(step.reads, rows, widths, strict=True):
            sources = tuple(_nearest(node, by_node)) or (tuple(feeders) if _reads_parts(node) else ())
            nbytes = min(count * width, _MOST_ROWS)
            self.flows += [Flow(source, name, nbytes // len(sources)) for source in dict.fromkeys(sources)]
            outside += 0 if sources else nbytes
        self.operators.append(
            Operator(name, step.kind, tuple(sorted(shape.items())), None, 1, min(outside, _MOST_ROWS), library="duckdb")
        )
        if step.node["type"] == AGGREGATE:
            self.aggregates[name] = tuple(_aggregate_text(each) for each in step.node.get("expressions", []))

    def _rows_of(self, node: Node) -> int:
        if (rows := self._rows.get(id(node))) is None:
            rows = self._rows[id(node)] = min(max(self._sizes.rows(node), 0), _MOST_ROWS)
        return rows

    def _width(self, node: Node) -> int:
        described = self._sizes.connection().execute(f"DESCRIBE {Renderer().relation(node).sql}").fetchall()
        return max(sum(width_of(str(row[1])) for row in described), 1)


def _shape(step: Step, rows: Sequence[int], widths: Sequence[int], many: int, wide: int) -> dict[str, int]:
    """Return a step's sizes, named as for its kind."""
    if step.kind == "join":
        # The larger side probes, as DuckDB chooses.
        order = sorted(range(len(rows)), key=lambda at: rows[at] * widths[at], reverse=True)
        left, others = order[0], order[1:]
        right_rows = sum(rows[at] for at in others)
        right_bytes = sum(rows[at] * widths[at] for at in others)
        return {
            "left_rows": rows[left],
            "left_row_bytes": widths[left],
            "right_rows": right_rows,
            "right_row_bytes": max(right_bytes // max(right_rows, 1), 1),
            "out_rows": many,
            "out_row_bytes": wide,
        }
    shape = {"rows": rows[0], "row_bytes": widths[0]}
    match step.kind:
        case "filter" | "top-n":
            return shape | {"kept_rows": min(many, rows[0])}
        case "aggregate":
            return shape | {"groups": many, "group_bytes": wide}
        case "project":
            return shape | {"expressions": formulas_of(step.node)}
        case _:
            return shape


def _nearest(node: Node, by_node: Mapping[int, str]) -> list[str]:
    """Return the steps whose rows an operator's are, or come from without another step."""
    if (name := by_node.get(id(node))) is not None:
        return [name]
    return [name for child in node.get("children", []) for name in _nearest(child, by_node)]


def _reads_parts(node: Node) -> bool:
    return scans(node, PARTS) > 0


def _aggregate_text(node: Node) -> str:
    """Return an aggregate as DuckDB's plans write it: sum(#1), count_star()."""
    distinct = "DISTINCT " if node["aggregate_type"] == "DISTINCT" else ""
    arguments = ", ".join(f"#{at}" for at in range(len(node.get("children", []))))
    return f"{node['qname']['path'][-1]}({distinct}{arguments})"


class CountedSizes:
    """Counts rows on a sample of the sharded table, with all other tables whole; a context manager."""

    def __init__(self, tables: Mapping[str, pa.Table], sharded: str, factor: float) -> None:
        """`tables` have all rows, except the sharded one, of whose rows there is one for `factor`."""
        self._sharded, self._factor = sharded, factor
        self._grows = False
        self._connection = _connected(tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return the connection that has the sample."""
        return self._connection

    def rows(self, node: Node) -> int:
        """Return rows over the whole data, from those of the sample."""
        is_sampled = scans(node, self._sharded) > 0 or (self._grows and scans(node, PARTS) > 0)
        if is_sampled and node["type"] in {AGGREGATE, "LOGICAL_DISTINCT"} and self._factor > 1:
            return self._groups(node)
        rows = self._number(f"SELECT count(*) FROM ({Renderer().relation(node).sql})")
        return round(rows * self._factor) if is_sampled and node["type"] != "LOGICAL_LIMIT" else rows

    def merged(self, split: Split) -> None:
        """Compute the partial results of the sample."""
        self._grows = split.grows
        self._connection.execute(f"CREATE TABLE {PARTS} AS {split.partial}")

    def _groups(self, node: Node) -> int:
        """Return the estimated number of groups (GEE): those seen once stand for as many as the sample leaves out."""
        (child,) = node["children"]
        keys = node.get("groups") if node["type"] == AGGREGATE else node["distinct_targets"]
        if not keys:
            return 1
        renderer = Renderer()
        source = renderer.relation(child)
        texts = [renderer.expression(key, lambda index: f"t.c{index}") for key in keys]
        counts = f"SELECT count(*) AS n FROM ({source.sql}) AS t GROUP BY {', '.join(texts)}"
        row = self._connection.execute(f"SELECT count(*), count(*) FILTER (WHERE n = 1) FROM ({counts})").fetchone()
        groups, single = (int(each) for each in row or (0, 0))
        return round(math.sqrt(self._factor) * single + groups - single)

    def _number(self, sql: str) -> int:
        row = self._connection.execute(sql).fetchone()
        return int(row[0]) if row else 0


class EstimatedSizes:
    """DuckDB's estimates for tables of these rows and columns, whose data is elsewhere; a context manager."""

    def __init__(self, tables: Mapping[str, SqlTable]) -> None:
        self._tables = dict(tables)
        self._connection = _empty(tables)
        self._planner = SqlPlanner(None, tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._planner.close()

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return a connection with empty tables of the declared columns."""
        return self._connection

    def rows(self, node: Node) -> int:
        """Return DuckDB's estimate."""
        return self._planner.rows_of(Renderer().relation(node).sql)

    def merged(self, split: Split) -> None:
        """Declare the partial results, of the size that DuckDB expects."""
        rows = max(self._planner.rows_of(split.partial), 1)
        described = self._connection.execute(f"DESCRIBE {split.partial}").fetchall()
        columns = {str(row[0]): str(row[1]) for row in described}
        self._planner.close()
        self._planner = SqlPlanner(None, self._tables | {PARTS: SqlTable(rows, 0, columns)})
        self._connection.execute(f"CREATE TABLE {PARTS} AS {split.partial}")


def _connected(tables: Mapping[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute(LOSSLESS)
    for name, table in tables.items():
        connection.register("_arriving", table)
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM _arriving")
        connection.unregister("_arriving")
    return connection


def _empty(tables: Mapping[str, SqlTable]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for name, table in tables.items():
        if not table.columns:
            raise StatementError(f"table {name}: its columns are unknown")
        columns = ", ".join(f"{quoted(column)} {kind}" for column, kind in table.columns.items())
        try:
            connection.execute(f"CREATE TABLE {quoted(name)} ({columns})")
        except duckdb.Error as error:
            raise StatementError(f"table {name}: {str(error).splitlines()[0]}") from None
    return connection
