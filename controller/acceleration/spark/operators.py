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
    plan = plan_of(query)
    sums = amounts_of(query)
    rows = rows_of(plan, sums)
    parts, rest = divided(query, plan, rows)
    widths = _Widths(plan, sums)
    counts: Counts[str] = Counts()
    operators: dict[int, SparkOperator] = {}
    for at in reversed(plan.order):
        role = plan.role(at)
        if role is not Role.FRAMES:
            operators[at] = _operator(plan, at, counts, rows, widths, sums, parts.get(at, []), query.driver)
    graph = _graph(query, plan, operators, rows, widths, machines)
    return Ran(query, tuple(operators.values()), graph, tuple(rest[index] for index in range(len(query.stages))))


def _operator(
    plan: Plan,
    at: int,
    counts: Counts[str],
    rows: Mapping[int, int],
    widths: _Widths,
    sums: Mapping[int, int],
    parts: list[Part],
    driver: Mapping[int, int],
) -> SparkOperator:
    node = plan.nodes[at]
    role, kind = role_of(node.name)
    counts[kind] += 1
    read = plan.inputs(at)
    read_rows = sum(rows[child] for child in read)
    return SparkOperator(
        f"{kind}-{counts[kind]}",
        shown_name(node.name),
        kind,
        role,
        tuple(parts),
        driver_s(node, driver),
        read_rows,
        rows[at],
        sum(rows[child] * widths.of(child) for child in read) or (rows[at] * widths.of(at) if not read else 0),
        rows[at] * widths.of(at),
        widths.is_measured(at) and all(widths.is_measured(child) for child in read),
        _counted_bytes(node, sums),
    )


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


def _graph(
    query: Query,
    plan: Plan,
    operators: Mapping[int, SparkOperator],
    rows: Mapping[int, int],
    widths: _Widths,
    machines: int,
) -> OperatorGraph:
    flows = [
        Flow(operators[source].name, operators[at].name, _share(operators[source].made_bytes, machines))
        for at in operators
        for source in _sources(plan, at)
    ]
    read = {flow.src for flow in flows}
    members = tuple(
        Operator(
            one.name,
            one.kind,
            tuple(sorted(_shape(plan, at, one, rows, widths, machines).items())),
            None,
            1,
            _share(one.read_bytes, machines) if not _sources(plan, at) else 0,
            0 if one.name in read else _share(one.made_bytes, machines),
            library="spark",
        )
        for at, one in operators.items()
    )
    return OperatorGraph(f"query {query.number}", members, tuple(flows), "sql")


def _sources(plan: Plan, at: int) -> list[int]:
    """Return the operators that a node reads, through frames."""
    found, waiting = [], list(plan.inputs(at))
    while waiting:
        below = waiting.pop()
        if plan.role(below) is Role.FRAMES:
            waiting += plan.inputs(below)
        else:
            found.append(below)
    return found


def _shape(
    plan: Plan, at: int, one: SparkOperator, rows: Mapping[int, int], widths: _Widths, machines: int
) -> dict[str, int]:
    inputs = plan.inputs(at)
    width = widths.of(inputs[0]) if inputs else widths.of(at)
    read, made = _share(one.read_rows if inputs else one.made_rows, machines), _share(one.made_rows, machines)
    sizes = {"rows": read, "row_bytes": width}
    match one.kind:
        case "filter" | "top-n":
            return sizes | {"kept_rows": made}
        case "aggregate":
            return sizes | {"groups": made, "group_bytes": widths.of(at)}
        case "project":
            return sizes | {"expressions": max(plan.nodes[at].detail.fields, 1)}
        case "join":
            sides = [(_share(rows[child], machines), widths.of(child)) for child in inputs[:2]] + [(0, 1)] * 2
            if plan.nodes[at].detail.builds_left:
                sides[:2] = sides[1::-1]
            (left, left_width), (right, right_width) = sides[:2]
            return {
                "left_rows": left,
                "left_row_bytes": left_width,
                "right_rows": right,
                "right_row_bytes": right_width,
                "out_rows": made,
                "out_row_bytes": widths.of(at),
            }
        case "sort" | "table-scan":
            return sizes
        case _:
            return {}


def _share(amount: int, machines: int) -> int:
    return min(-(-amount // machines), MAX_SIZE)
