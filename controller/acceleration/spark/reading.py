"""Applications from the lines of event logs: sums over tasks, kept per stage and accumulator and not per task."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from controller.acceleration.errors import AccelerationError
from controller.acceleration.spark import events
from controller.acceleration.spark.details import detail_of
from controller.acceleration.spark.files import Lines, Log
from controller.acceleration.spark.redaction import shown
from controller.acceleration.spark.values import Application, Counter, Node, Query, Stage, Unit

MOST_NODES: Final = 200_000
"""Nodes of plans kept of a log; queries beyond have no operators."""
MOST_STAGES: Final = 200_000
_MOST_BEFORE: Final = 10_000
"""Lines before the first event after which a file is taken for something else."""
_TESTED: Final = ("3", "4")
"""Major versions of Spark whose logs have been read in tests."""
_UNITS: Final = {unit.value: unit for unit in Unit}


@dataclass(slots=True)
class _Sums:
    """Sums of a stage's attempt, as its tasks end."""

    query: int | None
    tasks: int = 0
    failed: int = 0
    run_ms: int = 0
    failed_ms: int = 0
    cpu_ns: int = 0
    gc_ms: int = 0
    longest_ms: int = 0
    input_bytes: int = 0
    input_rows: int = 0
    read_bytes: int = 0
    read_rows: int = 0
    written_bytes: int = 0
    written_rows: int = 0
    spilled: int = 0
    info: events.StageInfo | None = None
    counters: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Execution:
    """A query as far as it has been read."""

    description: str
    start_ms: int
    end_ms: int | None = None
    is_failed: bool = False
    nodes: tuple[Node, ...] = ()
    driver: dict[int, int] = field(default_factory=dict)


def read_log(log: Log) -> Application:
    """Return the application of a log, as far as its lines are there; its faults say what is not.

    Raise AccelerationError for files that cannot be read, and for those without any event.
    """
    lines = Lines(log)
    reader = _Reader()
    reader.take(lines)
    if not reader.events:
        why = f" ({lines.faults[-1]})" if lines.faults else ""
        raise AccelerationError(f"{log.name}: is not an event log of Spark: no line is an event{why}")
    return reader.application(log.name, lines)


class _Reader:
    """Sums over a log's events."""

    def __init__(self) -> None:
        self.events = 0
        self._first_bad = 0
        self._bad_lines = 0
        self._head = events.ApplicationStart("", 0)
        self._start_ms: int | None = None
        self._end_ms: int | None = None
        self._version = ""
        self._executors: dict[str, events.ExecutorInfo] = {}
        self._peak = (0, 0)
        self._hosts: set[str] = set()
        self._stages: dict[tuple[int, int], _Sums] = {}
        self._query_of: dict[int, int] = {}
        self._queries: dict[int, _Execution] = {}
        self._nodes = 0
        self._unkept: Counts[str] = Counts()

    def take(self, lines: Lines) -> None:
        """Read lines to their end."""
        for line in lines:
            try:
                event = events.decode(line)
            # Deeply nested arrays exceed the decoder's depth.
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                self._bad_lines += 1
                self._first_bad = self._first_bad or lines.count
                if not self.events and self._bad_lines >= _MOST_BEFORE:
                    return
                continue
            self.events += 1
            if event is not None:
                self._add(event)

    def _add(self, event: events.Event) -> None:
        match event:
            case events.TaskEnd():
                self._task(event)
            case events.StageCompleted():
                if (sums := self._stage(event.info.number, event.info.attempt)) is not None:
                    sums.info = event.info
            case events.JobStart():
                self._job(event)
            case events.ExecutionStart():
                execution = _Execution(shown(event.description), event.start_ms)
                self._queries.setdefault(event.number, execution)
                self._plan(event.number, event.plan)
            case events.AdaptiveUpdate():
                self._plan(event.number, event.plan)
            case events.DriverUpdates():
                self._driver(event)
            case events.ExecutionEnd():
                if (query := self._queries.get(event.number)) is not None:
                    query.end_ms, query.is_failed = event.end_ms, bool(event.error)
            case _:
                self._environment(event)

    def _environment(self, event: events.Event) -> None:
        match event:
            case events.LogStart():
                self._version = self._version or event.version
            case events.ApplicationStart():
                self._head, self._start_ms = event, event.start_ms
            case events.ApplicationEnd():
                self._end_ms = event.end_ms
            case events.ExecutorAdded():
                self._executors[event.number] = event.info
                present = self._executors.values()
                hosts, cores = len({info.host for info in present}), sum(max(info.cores, 1) for info in present)
                self._peak = (max(self._peak[0], hosts), max(self._peak[1], cores))
            case events.ExecutorRemoved():
                self._executors.pop(event.number, None)
            case _:
                pass

    def _job(self, event: events.JobStart) -> None:
        text = event.properties.execution if event.properties else None
        if text is None or not text.isdigit() or len(text) > 18:
            return
        for stage in event.stages:
            # A later job that only skips a stage does not own it.
            self._query_of.setdefault(stage, int(text))

    def _stage(self, number: int, attempt: int) -> _Sums | None:
        sums = self._stages.get((number, attempt))
        if sums is None:
            if len(self._stages) >= MOST_STAGES:
                self._unkept["stages"] += 1
                return None
            sums = self._stages[number, attempt] = _Sums(self._query_of.get(number))
        return sums

    def _task(self, event: events.TaskEnd) -> None:
        sums = self._stage(event.stage, event.attempt)
        if sums is None:
            return
        is_success = event.end is None or event.end.reason == "Success"
        sums.tasks += 1
        sums.failed += not is_success
        if len(self._hosts) < MOST_STAGES:
            self._hosts.add(event.info.host)
        if (metrics := event.metrics) is not None:
            _add_metrics(sums, metrics)
            sums.failed_ms += 0 if is_success else metrics.run_ms
        if is_success:
            for accumulable in event.info.accumulables:
                if accumulable.metadata == "sql":
                    amount = events.amount_of(accumulable.update)
                    sums.counters[accumulable.number] = sums.counters.get(accumulable.number, 0) + amount

    def _plan(self, number: int, plan: events.PlanInfo) -> None:
        query = self._queries.get(number)
        if query is None:
            return
        nodes = _flat(plan)
        self._nodes += len(nodes) - len(query.nodes)
        if self._nodes > MOST_NODES:
            self._nodes -= len(nodes)
            self._unkept["plans"] += 1
            nodes = ()
        query.nodes = nodes

    def _driver(self, event: events.DriverUpdates) -> None:
        if (query := self._queries.get(event.number)) is not None and len(query.driver) < MOST_NODES:
            for accumulator, amount in event.updates:
                query.driver[accumulator] = query.driver.get(accumulator, 0) + min(max(amount, 0), 1 << 60)

    def application(self, source: str, lines: Lines) -> Application:
        """Return what has been read."""
        of_query: dict[int, list[Stage]] = {number: [] for number in self._queries}
        others: list[Stage] = []
        for (number, attempt), sums in sorted(self._stages.items()):
            stage = _stage_of(number, attempt, sums)
            owner = sums.query if sums.query is not None else -1
            of_query.get(owner, others).append(stage)
        machines, cores = self._peak
        return Application(
            source,
            shown(self._head.name) or "unnamed",
            shown(self._head.number or ""),
            shown(self._version),
            self._start_ms,
            self._end_ms,
            machines or max(len(self._hosts), 1),
            cores,
            tuple(_query_of(number, query, of_query[number]) for number, query in sorted(self._queries.items())),
            tuple(others),
            tuple(self._faults(lines, cores)),
        )

    def _faults(self, lines: Lines, cores: int) -> Iterable[str]:
        yield from lines.faults
        if self._end_ms is None:
            yield "ends before the application does"
        if self._bad_lines:
            are = "is no event" if self._bad_lines == 1 else "are not events"
            yield f"{self._bad_lines} of {lines.count} lines {are} (first: line {self._first_bad})"
        if lines.too_long:
            yield f"{lines.too_long} lines are longer than is read"
        for kind, count in self._unkept.items():
            yield f"too large to keep {count} more {kind}"
        if self._start_ms is None:
            yield "lacks its beginning"
        if not self._version:
            yield "does not state Spark's version"
        elif self._version.partition(".")[0] not in _TESTED:
            yield f"written by Spark {shown(self._version)}, read like {' and '.join(_TESTED)}"
        if not cores:
            yield "does not state its executors: one core a machine is assumed"


def _add_metrics(sums: _Sums, metrics: events.TaskMetrics) -> None:
    sums.run_ms += metrics.run_ms
    sums.cpu_ns += metrics.cpu_ns
    sums.gc_ms += metrics.gc_ms
    sums.longest_ms = max(sums.longest_ms, metrics.run_ms)
    sums.input_bytes += metrics.input.nbytes
    sums.input_rows += metrics.input.rows
    sums.read_bytes += metrics.read.remote + metrics.read.local
    sums.read_rows += metrics.read.rows
    sums.written_bytes += metrics.written.nbytes
    sums.written_rows += metrics.written.rows
    sums.spilled += metrics.spilled


def _stage_of(number: int, attempt: int, sums: _Sums) -> Stage:
    info = sums.info or events.StageInfo(number)
    return Stage(
        number,
        attempt,
        shown(info.name),
        sums.tasks,
        sums.failed,
        sums.run_ms / 1e3,
        sums.failed_ms / 1e3,
        sums.cpu_ns / 1e9,
        sums.gc_ms / 1e3,
        sums.longest_ms / 1e3,
        sums.input_bytes,
        sums.input_rows,
        sums.read_bytes,
        sums.read_rows,
        sums.written_bytes,
        sums.written_rows,
        sums.spilled,
        info.start_ms,
        info.end_ms,
        sums.counters,
    )


def _query_of(number: int, query: _Execution, stages: list[Stage]) -> Query:
    driver: Mapping[int, int] = query.driver
    return Query(
        number, query.description, query.start_ms, query.end_ms, query.is_failed, query.nodes, tuple(stages), driver
    )


def _flat(plan: events.PlanInfo) -> tuple[Node, ...]:
    """Return a plan's nodes, parents first; at most MOST_NODES."""
    nodes: list[events.PlanInfo] = [plan]
    children: list[tuple[int, ...]] = []
    for node in nodes:
        below = node.children if len(nodes) + len(node.children) <= MOST_NODES else []
        children.append(tuple(range(len(nodes), len(nodes) + len(below))))
        nodes.extend(below)
    return tuple(_node(node, below) for node, below in zip(nodes, children, strict=True))


def _node(node: events.PlanInfo, children: tuple[int, ...]) -> Node:
    name = node.name.strip()
    counters = tuple(
        Counter(metric.name, metric.number, _UNITS[metric.kind]) for metric in node.metrics if metric.kind in _UNITS
    )
    return Node(name, children, counters, detail_of(name, node.text, node.metadata))
