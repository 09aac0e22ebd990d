"""Applications of Apache Spark as their event logs show them: queries, stages, nodes of plans and their counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Unit(StrEnum):
    """Unit of a counter, in the words of Spark's metric types."""

    COUNT = "sum"
    BYTES = "size"
    MILLISECONDS = "timing"
    NANOSECONDS = "nsTiming"


@dataclass(frozen=True, slots=True)
class Counter:
    """A metric of a plan's node; tasks and the driver add to it under the number of its accumulator."""

    name: str
    accumulator: int
    unit: Unit


@dataclass(frozen=True, slots=True)
class Detail:
    """Facts from a node's text: columns of its output (those of a scan with bytes), sides of a join, plan number.

    `fields` is the number of columns if the text abbreviates them. Conditions, paths and values are not kept: they may
    hold what must not be shown.
    """

    columns: tuple[str, ...] = ()
    fields: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    keeps_left: bool = False
    builds_left: bool = False
    plan_id: int | None = None
    table: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a physical plan; `children` are positions in the plan, which lists parents first."""

    name: str
    children: tuple[int, ...] = ()
    counters: tuple[Counter, ...] = ()
    detail: Detail = Detail()


@dataclass(frozen=True, slots=True)
class Stage:
    """An attempt of a stage: sums over its ended tasks, of which `failed_s` are those of failed ones.

    `counters` are sums by accumulator over successful tasks.
    """

    number: int
    attempt: int
    name: str
    tasks: int
    failed_tasks: int
    run_s: float
    failed_s: float
    cpu_s: float
    gc_s: float
    longest_task_s: float
    input_bytes: int
    input_rows: int
    read_bytes: int
    read_rows: int
    written_bytes: int
    written_rows: int
    spilled_bytes: int
    start_ms: int | None
    end_ms: int | None
    counters: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Query:
    """An execution of SQL with its last plan, `driver` sums by accumulator; `end_ms` is None if the log ends before."""

    number: int
    description: str
    start_ms: int
    end_ms: int | None
    is_failed: bool
    nodes: tuple[Node, ...]
    stages: tuple[Stage, ...]
    driver: Mapping[int, int]

    @property
    def run_s(self) -> float:
        """Seconds of all tasks of all stages."""
        return sum(stage.run_s for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Application:
    """An application: `machines` and `cores` are the most at a time; `others` are stages that belong to no query.

    `faults` are defects of its log, one line each.
    """

    source: str
    name: str
    number: str
    version: str
    start_ms: int | None
    end_ms: int | None
    machines: int
    cores: int
    queries: tuple[Query, ...]
    others: tuple[Stage, ...]
    faults: tuple[str, ...]

    @property
    def run_s(self) -> float:
        """Seconds of all tasks."""
        return sum(query.run_s for query in self.queries) + sum(stage.run_s for stage in self.others)
