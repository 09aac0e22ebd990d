"""Seconds of each operator in each stage: its own timers, and its part of the time that no timer splits.

Spark times tasks, and some operators: sorts, scans, shuffles and Python workers by themselves, aggregates and the
building of hash tables together with all that they read. Operators in generated code have no timer. So a stage's
seconds (the sum of Executor Run Time over its tasks) are divided top down: each timer of an operator by itself is that
operator's; a timer that includes inputs bounds the operators below it; what is left within each such bound belongs to
its operators without a timer, in proportion to the rows that they read and write. Of the seconds outside of all timers
only that share is divided in which the stage's tasks used the CPU (Executor CPU Time over Executor Run Time): in the
others they waited, which is no operator's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from controller.acceleration.spark.kinds import LOGICAL, SHUFFLES, SUBQUERIES, Role, base_of, role_of
from controller.acceleration.spark.values import Counter, Node, Query, Stage, Unit

_OWN: Final = frozenset(
    {"sort time", "scan time", "shuffle write time", "fetch wait time", "time to run Python workers"}
)
_TIMED: Final = {"sort": "sort time", "table-scan": "scan time", "exchange": "shuffle write time"}
"""Kinds whose timer shows all of their time."""
_INCLUDING: Final = frozenset({"time in aggregation build", "time to build hash map"})
_READS: Final = frozenset(
    {
        "fetch wait time",
        "local bytes read",
        "remote bytes read",
        "records read",
        "local blocks read",
        "remote blocks read",
    }
)
"""Counters of an exchange in the stage that reads it; the others are of the stage that writes it."""
_DRIVER: Final = frozenset({"time to collect", "time to build", "time to broadcast"})
_PER_S: Final = {Unit.MILLISECONDS: 1e3, Unit.NANOSECONDS: 1e9}


@dataclass(frozen=True, slots=True)
class Part:
    """An operator's part of a stage's seconds; `timed_s` is that of its own timer."""

    stage: int
    attempt: int
    seconds: float
    timed_s: float


@dataclass(slots=True)
class Plan:
    """A query's nodes as they ran: without repeated subqueries; `segment` numbers what runs in one stage."""

    nodes: tuple[Node, ...]
    order: list[int] = field(default_factory=list)
    parent: dict[int, int] = field(default_factory=dict)
    segment: dict[int, int] = field(default_factory=dict)
    framing: set[int] = field(default_factory=set)

    def role(self, at: int) -> Role:
        """Return the role of the node at a position."""
        return Role.FRAMES if at in self.framing else role_of(self.nodes[at].name)[0]

    def inputs(self, at: int) -> list[int]:
        """Return the nodes whose rows a node reads."""
        return [
            child
            for child in self.nodes[at].children
            if child in self.segment and base_of(self.nodes[child].name) not in SUBQUERIES
        ]


def plan_of(query: Query) -> Plan:
    """Return a query's plan, each node in its segment: exchanges and subqueries begin new ones below them."""
    plan = Plan(query.nodes)
    seen: set[int] = set()
    waiting = [(0, -1, 0, False)] if query.nodes else []
    segments = 1
    while waiting:
        at, parent, segment, is_logical = waiting.pop()
        node = query.nodes[at]
        base = base_of(node.name)
        if node.counters and node.counters[0].accumulator in seen:
            # A reused subquery is listed wherever its result is read.
            continue
        seen.update(counter.accumulator for counter in node.counters)
        is_logical = (is_logical or base in LOGICAL) and base != "LogicalQueryStage"
        if is_logical:
            plan.framing.add(at)
        if base in SHUFFLES or base in SUBQUERIES:
            segment, segments = segments, segments + 1
        plan.order.append(at)
        plan.segment[at] = segment
        if parent >= 0:
            plan.parent[at] = parent
        waiting += [(child, at, segment, is_logical) for child in reversed(node.children)]
    return plan


def amounts_of(query: Query) -> dict[int, int]:
    """Return the sums of a query's counters by accumulator: over its stages, else the driver's."""
    sums: dict[int, int] = dict(query.driver)
    counted: dict[int, int] = {}
    for stage in query.stages:
        for accumulator, amount in stage.counters.items():
            counted[accumulator] = counted.get(accumulator, 0) + amount
    return sums | counted


def rows_of(plan: Plan, sums: Mapping[int, int]) -> dict[int, int]:
    """Return the rows that each node puts out: counted, else those that it reads."""
    rows: dict[int, int] = {}
    written = {
        node.detail.plan_id: counted
        for node in plan.nodes
        if node.detail.plan_id is not None and (counted := _counted_rows(node, sums)) is not None
    }
    for at in reversed(plan.order):
        node = plan.nodes[at]
        counted = _counted_rows(node, sums)
        if counted is None and node.detail.plan_id is not None and base_of(node.name) == "ReusedExchange":
            counted = written.get(node.detail.plan_id)
        rows[at] = sum(rows[child] for child in plan.inputs(at)) if counted is None else counted
    return rows


def divided(query: Query, plan: Plan, rows: Mapping[int, int]) -> tuple[dict[int, list[Part]], dict[int, float]]:
    """Return the parts of each node, and the seconds of each stage (by position) that belong to no operator."""
    owner: dict[int, tuple[int, Counter]] = {}
    for at in plan.order:
        owner |= {counter.accumulator: (at, counter) for counter in plan.nodes[at].counters}
    parts: dict[int, list[Part]] = {}
    rest: dict[int, float] = {}
    for index, stage in enumerate(query.stages):
        shares, timed = _of_stage(stage, plan, rows, owner)
        rest[index] = max(stage.run_s - sum(shares.values()), 0.0)
        for at, seconds in shares.items():
            parts.setdefault(at, []).append(Part(stage.number, stage.attempt, seconds, timed.get(at, 0.0)))
    return parts, rest


def driver_s(node: Node, driver: Mapping[int, int]) -> float:
    """Return the seconds that the driver spent on a node: collecting and building what is broadcast."""
    return sum(
        driver.get(counter.accumulator, 0) / _PER_S[counter.unit]
        for counter in node.counters
        if counter.name in _DRIVER and counter.unit in _PER_S
    )


def counted(node: Node, name: str, sums: Mapping[int, int]) -> int | None:
    """Return the sum of a node's counter, None without one or without an addition."""
    return next((sums[one.accumulator] for one in node.counters if one.name == name and one.accumulator in sums), None)


def _counted_rows(node: Node, sums: Mapping[int, int]) -> int | None:
    is_shuffle = base_of(node.name) == "Exchange"
    names = ("shuffle records written", "records read") if is_shuffle else ("number of output rows",)
    has_counter = any(counter.name in names for counter in node.counters)
    found = next((amount for name in names if (amount := counted(node, name, sums)) is not None), None)
    # Counters that stay at 0 are not in the log.
    return 0 if found is None and has_counter else found


@dataclass(frozen=True, slots=True)
class _InStage:
    """Nodes that run in a stage, parents first, with seconds of their own timers and of those that include inputs.

    A timer that includes inputs shows at least what is timed below it: Python workers start before the aggregate's.
    `timed_s` are the seconds that timers show, without those within others.
    """

    plan: Plan
    members: tuple[int, ...]
    own: Mapping[int, float]
    including: dict[int, float]
    timed_s: float = 0.0

    def bound(self, at: int) -> int:
        """Return the nearest node, from `at` up in the stage, whose timer includes what it reads; -1 for the stage."""
        while at >= 0:
            if at in self.including and at in self.members:
                return at
            at = self.plan.parent.get(at, -1)
        return -1

    def outer(self, at: int) -> int:
        """Return the bound that a node's own bound is within."""
        return self.bound(self.plan.parent.get(at, -1))


def _of_stage(
    stage: Stage, plan: Plan, rows: Mapping[int, int], owner: Mapping[int, tuple[int, Counter]]
) -> tuple[dict[int, float], Mapping[int, float]]:
    """Return the seconds of each node in a stage, and those of its own timer."""
    within = _in_stage(stage, plan, owner)
    timed_s = min(within.timed_s, stage.run_s)
    # Before Spark 2.1 tasks did not state the time of the CPU.
    on_cpu = min(stage.cpu_s / stage.run_s, 1.0) if stage.cpu_s and stage.run_s else 1.0
    budget_s = timed_s + (stage.run_s - timed_s) * on_cpu
    return _shares(budget_s, within, rows), within.own


def _in_stage(stage: Stage, plan: Plan, owner: Mapping[int, tuple[int, Counter]]) -> _InStage:
    segments: set[int] = set()
    own: dict[int, float] = {}
    including: dict[int, float] = {}
    for accumulator, amount in stage.counters.items():
        if accumulator not in owner:
            continue
        at, counter = owner[accumulator]
        is_read = counter.name in _READS and plan.role(at) is Role.MOVES
        segments.add(plan.segment[plan.parent[at]] if is_read and at in plan.parent else plan.segment[at])
        if (per_s := _PER_S.get(counter.unit)) is not None and plan.role(at) is not Role.FRAMES:
            if counter.name in _OWN:
                own[at] = own.get(at, 0.0) + amount / per_s
            elif counter.name in _INCLUDING:
                including[at] = including.get(at, 0.0) + amount / per_s
    members = tuple(at for at in plan.order if plan.segment[at] in segments and plan.role(at) is not Role.FRAMES)
    within = _InStage(plan, members, own, including)
    below: dict[int, float] = defaultdict(float)
    for at, seconds in own.items():
        below[within.bound(at)] += seconds
    for at in reversed(members):
        if at in including:
            including[at] = max(including[at], below[at])
            below[within.outer(at)] += including[at]
    return replace(within, timed_s=below[-1])


def _shares(budget_s: float, within: _InStage, rows: Mapping[int, int]) -> dict[int, float]:
    """Divide seconds of a stage among its nodes; the shares never sum up to more."""
    plan, shares = within.plan, dict[int, float]()
    bounds = {at: within.bound(at) for at in (*within.members, *within.own)}
    left: dict[int, float] = {-1: budget_s}
    # Parents come first, so an outer bound has its seconds already.
    for at in within.members:
        if at in within.including:
            outer = within.outer(at)
            left[at] = min(within.including[at], left[outer])
            left[outer] -= left[at]
    for at, seconds in within.own.items():
        # A shuffle's wait is in the stage that reads it, within the bound of its reader.
        shares[at] = min(seconds, left[bounds[at]])
        left[bounds[at]] -= shares[at]
    takers: dict[int, list[tuple[int, int]]] = {}
    for at in within.members:
        if not _is_timed(plan.nodes[at]):
            weight = rows.get(at, 0) + sum(rows.get(child, 0) for child in plan.inputs(at)) + 1
            takers.setdefault(bounds[at], []).append((at, weight))
    for bound, weighted in takers.items():
        total = sum(weight for _, weight in weighted)
        for at, weight in weighted:
            shares[at] = shares.get(at, 0.0) + left[bound] * weight / total
    return shares


def _is_timed(node: Node) -> bool:
    """Return whether a timer shows all of a node's time, although one that stays at 0 is not in the log."""
    name = _TIMED.get(role_of(node.name)[1], "time to run Python workers")
    return any(counter.name == name for counter in node.counters)
