"""Operators of a query: measured seconds, rows and bytes, and the graph of them that the acceleration model places."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping
from dataclasses import dataclass

from controller.acceleration.spark.details import FIELD_BYTES
from controller.acceleration.spark.kinds import Role, base_of, role_of, shown_name
from controller.acceleration.spark.seconds import (
    Part,
    Plan,
    amounts_of,
    counted,
    divided,
    driver_s,
    plan_of,
    rows_of,
)
from controller.acceleration.spark.values import Node, Query, Stage
from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.cluster.operators.values import MAX_SIZE


@dataclass(frozen=True, slots=True)
class SparkOperator:
    """An operator as it ran: `name` in the graph, seconds of its tasks by stage and of the driver, rows and bytes.

    `read_bytes` and `made_bytes` are rows times the width of a row, which is measured by shuffles (`is_width_measured`)
    and otherwise that of the columns' types. `counted_bytes` is Spark's own count: files read, or bytes shuffled.
    """

    name: str
    spark_name: str
    kind: str
    role: Role
    parts: tuple[Part, ...]
    driver_s: float
    read_rows: int
    made_rows: int
    read_bytes: int
    made_bytes: int
    is_width_measured: bool
    counted_bytes: int | None

    @property
    def seconds(self) -> float:
        """Seconds of tasks."""
        return sum(part.seconds for part in self.parts)

    @property
    def timed_s(self) -> float:
        """Seconds that the operator's own timer counted."""
        return sum(part.timed_s for part in self.parts)


@dataclass(frozen=True, slots=True)
class Ran:
    """A query's operators, their graph, and the seconds of each of its stages that belong to no operator."""

    query: Query
    operators: tuple[SparkOperator, ...]
    graph: OperatorGraph
    rest_s: tuple[float, ...]

    def in_stage(self, stage: Stage) -> list[tuple[SparkOperator, Part]]:
        """Return the operators that took part in a stage, with their parts."""
        return [
            (operator, part)
            for operator in self.operators
            for part in operator.parts
            if (part.stage, part.attempt) == (stage.number, stage.attempt)
        ]


def ran(query: Query, machines: int) -> Ran:
    """Return a query's operators; the graph has the part of one of `machines`, as each does an equal part."""
    return _Builder(query, machines).build()


class _Builder:
    """Builds a query's operators from its plan and counters."""

    def __init__(self, query: Query, machines: int) -> None:
        self._query = query
        self._machines = machines
        self._plan = plan_of(query)
        self._sums = amounts_of(query)
        self._rows = rows_of(self._plan, self._sums)
        self._widths = _Widths(self._plan, self._sums)
        self._counts: Counts[str] = Counts()

    def build(self) -> Ran:
        """Return the operators, inputs first."""
        plan = self._plan
        parts, rest = divided(self._query, plan, self._rows)
        operators = {
            at: self._operator(at, parts.get(at, [])) for at in reversed(plan.order) if plan.role(at) is not Role.FRAMES
        }
        rest_s = tuple(rest[index] for index in range(len(self._query.stages)))
        return Ran(self._query, tuple(operators.values()), self._graph(operators), rest_s)

    def _operator(self, at: int, parts: list[Part]) -> SparkOperator:
        node, read, made_rows = self._plan.nodes[at], self._plan.inputs(at), self._rows[at]
        role, kind = role_of(node.name)
        self._counts[kind] += 1
        made_bytes = made_rows * self._widths.of(at)
        return SparkOperator(
            f"{kind}-{self._counts[kind]}",
            shown_name(node.name),
            kind,
            role,
            tuple(parts),
            driver_s(node, self._query.driver),
            sum(self._rows[child] for child in read),
            made_rows,
            sum(self._rows[child] * self._widths.of(child) for child in read) if read else made_bytes,
            made_bytes,
            all(self._widths.is_measured(one) for one in (at, *read)),
            _counted_bytes(node, self._sums),
        )

    def _graph(self, operators: Mapping[int, SparkOperator]) -> OperatorGraph:
        sources = {at: self._sources(at) for at in operators}
        flows = tuple(
            Flow(operators[source].name, operators[at].name, self._share(operators[source].made_bytes))
            for at in operators
            for source in sources[at]
        )
        read = {flow.src for flow in flows}
        members = tuple(
            Operator(
                one.name,
                one.kind,
                tuple(sorted(self._shape(at, one).items())),
                None,
                1,
                0 if sources[at] else self._share(one.read_bytes),
                0 if one.name in read else self._share(one.made_bytes),
                library="spark",
            )
            for at, one in operators.items()
        )
        return OperatorGraph(f"query {self._query.number}", members, flows, "sql")

    def _sources(self, at: int) -> list[int]:
        """Return the operators that a node reads, through frames."""
        found, waiting = [], list(self._plan.inputs(at))
        while waiting:
            below = waiting.pop()
            if self._plan.role(below) is Role.FRAMES:
                waiting += self._plan.inputs(below)
            else:
                found.append(below)
        return found

    def _shape(self, at: int, one: SparkOperator) -> dict[str, int]:
        inputs, made = self._plan.inputs(at), self._share(one.made_rows)
        sizes = {
            "rows": self._share(one.read_rows) if inputs else made,
            "row_bytes": self._widths.of(inputs[0] if inputs else at),
        }
        match one.kind:
            case "filter" | "top-n":
                return sizes | {"kept_rows": made}
            case "aggregate":
                return sizes | {"groups": made, "group_bytes": self._widths.of(at)}
            case "project":
                return sizes | {"expressions": max(self._plan.nodes[at].detail.fields, 1)}
            case "join":
                return self._join(at, inputs, made)
            case "sort" | "table-scan":
                return sizes
            case _:
                return {}

    def _join(self, at: int, inputs: list[int], made: int) -> dict[str, int]:
        """Return a join's sizes; the model builds the right side."""
        sides = [(self._share(self._rows[child]), self._widths.of(child)) for child in inputs[:2]]
        sides += [(0, 1)] * (2 - len(sides))
        probed, built = reversed(sides) if self._plan.nodes[at].detail.builds_left else sides
        return {
            "left_rows": probed[0],
            "left_row_bytes": probed[1],
            "right_rows": built[0],
            "right_row_bytes": built[1],
            "out_rows": made,
            "out_row_bytes": self._widths.of(at),
        }

    def _share(self, total: int) -> int:
        return min(-(-total // self._machines), MAX_SIZE)


def _counted_bytes(node: Node, sums: Mapping[int, int]) -> int | None:
    names = ("size of files read", "shuffle bytes written", "data size")
    return next((amount for name in names if (amount := counted(node, name, sums)) is not None), None)


class _Widths:
    """Bytes of a row of each node's output, in Spark's form in memory."""

    def __init__(self, plan: Plan, sums: Mapping[int, int]) -> None:
        self._plan = plan
        self._types: dict[str, int] = {}
        for node in plan.nodes:
            self._types |= node.detail.widths
        self._measured: dict[int, int] = {}
        for at in plan.order:
            if (width := _shuffled_width(plan.nodes[at], sums)) is not None:
                self._measure(at, width)
        self._width: dict[int, int] = {}
        for at in reversed(plan.order):
            self._width[at] = self._measured.get(at) or self._assumed(at)

    def of(self, at: int) -> int:
        """Return the bytes of a row."""
        return self._width[at]

    def is_measured(self, at: int) -> bool:
        """Return whether a shuffle counted the rows' bytes."""
        return at in self._measured

    def _measure(self, at: int, width: int) -> None:
        """Set the width of a shuffle, of what frames it above, and of what it reads."""
        self._measured[at] = width
        above = self._plan.parent.get(at, -1)
        while above >= 0 and self._plan.role(above) is Role.FRAMES and len(self._plan.inputs(above)) == 1:
            self._measured[above] = width
            above = self._plan.parent.get(above, -1)
        below = self._plan.inputs(at)
        while len(below) == 1:
            self._measured.setdefault(below[0], width)
            if self._plan.role(below[0]) is not Role.FRAMES:
                break
            below = self._plan.inputs(below[0])

    def _assumed(self, at: int) -> int:
        node, detail = self._plan.nodes[at], self._plan.nodes[at].detail
        inputs = self._plan.inputs(at)
        if detail.fields:
            fields = sum(self._types.get(column, FIELD_BYTES) for column in detail.columns)
            # Eight bytes hold the null bits of 64 fields.
            return fields + (detail.fields - len(detail.columns)) * FIELD_BYTES + -(-detail.fields // 64) * 8
        if role_of(node.name)[1] == "join" and len(inputs) == 2 and not detail.keeps_left:
            return self._width[inputs[0]] + self._width[inputs[1]] - FIELD_BYTES
        return self._width[inputs[0]] if inputs else 2 * FIELD_BYTES


def _shuffled_width(node: Node, sums: Mapping[int, int]) -> int | None:
    """Return the bytes of a row that a shuffle counted; those of a broadcast are of its whole hash table."""
    if base_of(node.name) != "Exchange":
        return None
    rows, nbytes = counted(node, "shuffle records written", sums), counted(node, "data size", sums)
    return max(round(nbytes / rows), 1) if rows and nbytes else None
