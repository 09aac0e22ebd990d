"""Values to rows: a snapshot, and the changes since the previous one, as a batch for each table."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from collectors.history import schema
from collectors.history.schema import Table
from collectors.history.settings import HistorySettings
from collectors.statistics.sketch import Sketch
from collectors.values import (
    LINK_FIGURES,
    ChildKey,
    ChildState,
    ClockState,
    DropRecord,
    Event,
    FlowKey,
    FlowMove,
    JobKey,
    JobState,
    LinkState,
    PathState,
    ReporterKey,
    ReporterState,
    Snapshot,
    Subject,
)
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.drop_reasons import reason_name

Row = tuple[Any, ...]


class JobRows:
    """Makes rows of snapshots' jobs; keeps the previous totals."""

    def __init__(self) -> None:
        self._jobs: Mapping[JobKey, JobState] = {}

    def take(self, jobs: Mapping[JobKey, JobState]) -> tuple[list[Row], list[Row]]:
        """Return a row for each job in a switch, and one for each of its children."""
        before, self._jobs = self._jobs, jobs
        states: list[Row] = []
        children: list[Row] = []
        for key, state in jobs.items():
            last = before.get(key)
            # A number that another job has now, or a job that was forgotten, restarts at 0.
            if last is not None and (last.reported > state.reported or last.items > state.items):
                last = None
            states.append(_job(state, last))
            children += _children(state, last)
        return states, children


def _job(state: JobState, last: JobState | None) -> Row:
    return (
        state.key.job,
        state.name,
        state.key.switch,
        state.is_leaf,
        state.epoch,
        state.items - (last.items if last else 0),
        state.items_per_s,
        state.reported - (last.reported if last else 0),
        state.repeated - (last.repeated if last else 0),
        state.cells_used,
        state.cells,
        state.wait_mean_ns,
        state.wait_p50_ns,
        state.wait_p99_ns,
        state.wait_max_ns,
        state.age_ns,
        state.samples,
    )


def _children(state: JobState, last: JobState | None) -> Iterator[Row]:
    before = {child.key: child.last for child in last.children} if last else {}
    for child in state.children:
        yield (
            state.key.job,
            state.name,
            state.key.switch,
            child.key.number,
            child.key.name,
            child.last - before.get(child.key, 0),
            child.last_share,
            *_waits(child),
            child.samples,
        )


def _waits(child: ChildState) -> tuple[int | None, int | None, int]:
    return child.wait_mean_ns, child.wait_max_ns, child.wait_caused_ns


_US_NS: Final = 1000
LEFT_OUT: Final = "history paths left out"
"""The counter of flows that were not written because an interval had too many."""

_NO_FLOW: Final = (None,) * 7


_LINK_VALUES: Final = attrgetter(
    *(
        figure.name
        for figure in LINK_FIGURES.values()
        if figure.uses.merge is not None
        for _ in range(2 if figure.uses.greatest else 1)
    )
)
"""Values of a link's columns; of a figure with a second column, twice."""


DropKind = tuple[int, int | None, int | None, int | None, int, FlowKey | None]
"""Node id, ingress port, egress port, queue, reason and flow of a drop."""


class DropTally:
    """Counts drops by kind, a bounded number of kinds with their flow and ports; from any thread."""

    def __init__(self, max_kinds: int) -> None:
        self._max_kinds = max_kinds
        self._guard = threading.Lock()
        self._kinds: Counter[DropKind] = Counter()

    def add(self, drops: Iterable[DropRecord]) -> None:
        """Count drops; those of a new kind, when there are too many, only by node and reason."""
        with self._guard:
            for drop in drops:
                kind = (drop.node_id, drop.ingress_port, drop.egress_port, drop.queue_id, drop.reason, drop.flow)
                if kind not in self._kinds and len(self._kinds) >= self._max_kinds:
                    kind = (drop.node_id, None, None, None, drop.reason, None)
                self._kinds[kind] += 1

    def take(self) -> Mapping[DropKind, int]:
        """Return the counts, and restart at 0."""
        with self._guard:
            kinds, self._kinds = self._kinds, Counter()
        return kinds


@dataclass(frozen=True, slots=True)
class Observation:
    """Data to record for one interval; `wall_ns` is the UNIX time at which the snapshot was taken."""

    wall_ns: int
    snapshot: Snapshot
    counters: Mapping[str, int] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    drops: Mapping[DropKind, int] = field(default_factory=dict)
    delays: Mapping[LinkKey, Sketch] = field(default_factory=dict)
    notes: tuple[tuple[int, Event], ...] = ()
    """Events whose note was given or withdrawn, with the UNIX time of that."""
    moves: tuple[FlowMove, ...] = ()


class RowMaker:
    """Makes rows; keeps previous counters, because rows hold increases."""

    def __init__(self, topology: Topology, settings: HistorySettings) -> None:
        self._topology = topology
        self._settings = settings
        self._counters: Mapping[str, int] = {}
        self._reporters: Mapping[tuple[int, int], ReporterState] = {}
        self._jobs = JobRows()
        self._left_out = 0

    def batches(self, seen: Observation) -> dict[str, pa.RecordBatch]:
        """Return the rows of every table that has any."""
        when = (seen.wall_ns // _US_NS, self._settings.interval_ns, 1)
        offset_ns = seen.wall_ns - seen.snapshot.taken_ns
        rows: dict[Table, list[Row]] = {
            schema.LINKS: [(*when, *_link(link), seen.delays.get(key)) for key, link in seen.snapshot.links.items()],
            schema.PATHS: [(*when, *self._path(path)) for path in self._busiest(seen.snapshot)],
            schema.REPORTERS: [(*when, *row) for row in self._reporter_rows(seen.snapshot.reporters)],
            schema.CLOCKS: [(*when, *self._clock(clock)) for clock in seen.snapshot.clocks.values()],
            schema.DROPS: [(*when, *self._drop(kind, packets)) for kind, packets in seen.drops.items()],
            schema.EVENTS: [
                *(_event(event, offset_ns) for event in seen.events),
                *(_note_row(wall_ns, event) for wall_ns, event in seen.notes),
            ],
        }
        rows[schema.MOVES] = [_move(move) for move in seen.moves]
        rows[schema.JOBS], rows[schema.JOB_CHILDREN] = (
            [(*when, *row) for row in part] for part in self._jobs.take(seen.snapshot.jobs)
        )
        rows[schema.COUNTERS] = [(*when, *row) for row in self._counter_rows(seen.counters)]
        return {table.name: table.batch(columns) for table, columns in rows.items() if columns}

    def _busiest(self, snapshot: Snapshot) -> list[PathState]:
        paths = list(snapshot.paths.values())
        most = self._settings.max_paths
        if len(paths) <= most:
            return paths
        self._left_out += len(paths) - most
        return sorted(paths, key=lambda path: path.rate_bps or 0, reverse=True)[:most]

    def _path(self, path: PathState) -> Row:
        return (
            *self._flow(path.flow),
            list(path.switches),
            path.delay_ns,
            path.delay_p50_ns,
            path.delay_p99_ns,
            path.loss,
            path.bottleneck_bps,
            path.rate_bps,
            path.age_ns,
            path.samples,
        )

    def _flow(self, flow: FlowKey) -> Row:
        hosts = (self._topology.host_by_address.get(end) for end in (flow.src, flow.dst))
        names = (None if host is None else host.name for host in hosts)
        return (str(flow.src), str(flow.dst), *names, flow.protocol, flow.src_port, flow.dst_port)

    def _node(self, node_id: int) -> str | None:
        node = self._topology.switch_by_id.get(node_id)
        return None if node is None else node.name

    def _reporter_rows(self, reporters: Mapping[tuple[int, int], ReporterState]) -> Iterable[Row]:
        before, self._reporters = self._reporters, reporters
        for key, now in reporters.items():
            then = before.get(key)
            counts = _counts(now)
            # An account that was forgotten and opened again restarts at 0.
            if then is not None and then.received <= now.received:
                counts = tuple(count - old for count, old in zip(counts, _counts(then), strict=True))
            yield (now.node_id, now.hw_id, self._node(now.node_id), *counts)

    def _clock(self, clock: ClockState) -> Row:
        node = self._node(clock.node_id)
        return (clock.node_id, node, clock.group, clock.offset_ns, clock.drift_ppb, clock.uncertainty_ns)

    def _drop(self, kind: DropKind, packets: int) -> Row:
        node_id, ingress_port, egress_port, queue_id, reason, flow = kind
        where = (node_id, self._node(node_id), ingress_port, egress_port, queue_id, reason_name(reason))
        return (*where, *(_NO_FLOW if flow is None else self._flow(flow)), packets)

    def _counter_rows(self, counters: Mapping[str, int]) -> list[Row]:
        before, self._counters = self._counters, dict(counters)
        increases = {name: count - before.get(name, 0) for name, count in counters.items()}
        increases[LEFT_OUT], self._left_out = self._left_out, 0
        return [(name, increase) for name, increase in increases.items() if increase]


def _link(link: LinkState) -> Row:
    return (link.link.src, link.link.dst, *_LINK_VALUES(link))


def _counts(state: ReporterState) -> tuple[int, ...]:
    return (state.received, state.lost, state.late, state.duplicate, state.restarts)


def _event(event: Event, offset_ns: int) -> Row:
    """Return an event's row; the collector's clock is `offset_ns` behind UNIX time."""
    evidence = [
        {"time": (row.time_ns + offset_ns) // _US_NS, "figure": row.figure, "value": row.value}
        for row in event.evidence
    ]
    when, kind = (event.time_ns + offset_ns) // _US_NS, _kind(event.subject)
    about = (kind, str(event.subject), event.figure, event.value, event.threshold, event.phase)
    return (when, event.rule, *about, evidence, *_note(event), event.severity)


def _note_row(wall_ns: int, event: Event) -> Row:
    """Return the row of an acknowledgement, or of its withdrawal."""
    about = (_kind(event.subject), str(event.subject), event.figure, event.value, event.threshold)
    phase = "withdrawn" if event.note is None else "acknowledged"
    return (wall_ns // _US_NS, event.rule, *about, phase, (), *_note(event), event.severity)


def _move(move: FlowMove) -> Row:
    flow = (move.src_host, move.dst_host, move.protocol, move.src_port, move.dst_port)
    return (move.time_ns // _US_NS, *flow, list(move.old_path), list(move.new_path), move.reason, move.gain_ns)


def _note(event: Event) -> tuple[str | None, str | None]:
    return (None, None) if event.note is None else (event.note.by, event.note.text)


def _kind(subject: Subject) -> str:
    match subject:
        case LinkKey():
            return "link"
        case ReporterKey():
            return "reporter"
        case FlowKey():
            return "flow"
        case JobKey():
            return "job"
        case ChildKey():
            return "child"
