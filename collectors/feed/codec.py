"""Values to bytes for the feed between processes: snapshots, hop records, status; framing as `messages` has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from collectors.errors import FeedError
from collectors.feed.messages import FlowRow, flow_in, flow_out, pack, unpack
from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    CollectorStatus,
    DelaySource,
    HopRecord,
    JobKey,
    JobNote,
    JobState,
    LinkCondition,
    LinkState,
    LinkStatus,
    LossSource,
    PathState,
    RecordKind,
    ReporterState,
    Snapshot,
)
from dataplane.topology.values import LinkKey

MAX_INTERVAL_NS: Final = 3_600_000_000_000
MAX_CAUSE: Final = 500
"""Characters of the cause of a dead link, at most."""


class _Record(msgspec.Struct, array_like=True, frozen=True):
    received_ns: int
    flow: FlowRow
    reporter_id: int
    sequence: int
    hop_index: int
    hop_count: int | None
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    hop_latency_ns: int | None
    queue_id: int | None
    queue_occupancy_frames: int | None
    ingress_timestamp_ns: int | None
    egress_timestamp_ns: int | None
    tx_bytes_per_window: int | None
    packet_id: int
    kind: RecordKind
    buffer_occupancy_frames: int | None


class _Link(msgspec.Struct, array_like=True, frozen=True):
    src: str
    dst: str
    rate_bps: int
    delay_mean_ns: int
    delay_p50_ns: int
    delay_p99_ns: int
    queue_occupancy_frames: float
    utilisation: float
    available_bps: int
    loss: float | None
    age_ns: int | None
    samples: int
    source: DelaySource
    delay_ewma_ns: int | None
    delay_max_ns: int | None
    delay_uncertainty_ns: int | None
    loss_source: LossSource | None
    buffer_occupancy_frames: float | None
    lost_packets: int | None


class _Path(msgspec.Struct, array_like=True, frozen=True):
    flow: FlowRow
    switches: tuple[str, ...]
    delay_ns: int
    bottleneck_bps: int
    age_ns: int
    rate_bps: int | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    loss: float | None
    samples: int
    measured_bytes: int = 0
    is_young: bool = False


class _Reporter(msgspec.Struct, array_like=True, frozen=True):
    node_id: int
    hw_id: int
    received: int
    lost: int
    late: int
    duplicate: int
    restarts: int
    contested: int = 0


class _Clock(msgspec.Struct, array_like=True, frozen=True):
    node_id: int
    group: int
    offset_ns: int
    drift_ppb: int
    uncertainty_ns: int


class _Child(msgspec.Struct, array_like=True, frozen=True):
    number: int
    name: str
    last: int
    last_share: float
    wait_mean_ns: int | None
    wait_max_ns: int | None
    wait_caused_ns: int
    samples: int


class _Job(msgspec.Struct, array_like=True, frozen=True):
    job: int
    switch: str
    name: str | None
    epoch: int | None
    cells: int | None
    is_leaf: bool
    items: int
    items_per_s: float | None
    reported: int
    repeated: int
    repeated_per_item: float
    cells_used: int
    wait_mean_ns: int
    wait_p50_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    samples: int
    age_ns: int
    children: list[_Child]


class _Note(msgspec.Struct, array_like=True, frozen=True):
    job: int
    name: str
    epoch: int | None
    cells: int | None


class _LinkStatus(msgspec.Struct, array_like=True, frozen=True):
    src: str
    dst: str
    condition: LinkCondition
    age_ns: Annotated[int, msgspec.Meta(ge=0)]
    cause: Annotated[str, msgspec.Meta(max_length=MAX_CAUSE)]


class _Snapshot(msgspec.Struct, array_like=True, frozen=True):
    taken_ns: int
    links: list[_Link]
    paths: list[_Path]
    reporters: list[_Reporter]
    clocks: list[_Clock]
    jobs: list[_Job]
    statuses: list[_LinkStatus]


class _Status(msgspec.Struct, array_like=True, frozen=True):
    taken_ns: int
    counters: dict[str, int]
    last_problem: str | None


class _Watch(msgspec.Struct, array_like=True, frozen=True):
    interval_ns: int


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return a snapshot as a message."""
    return pack(
        _Snapshot(
            snapshot.taken_ns,
            [_link_out(link) for link in snapshot.links.values()],
            [_path_out(path) for path in snapshot.paths.values()],
            [_reporter_out(state) for state in snapshot.reporters.values()],
            [_clock_out(state) for state in snapshot.clocks.values()],
            [_job_out(job) for job in snapshot.jobs.values()],
            _statuses_out(snapshot.statuses),
        )
    )


def decode_snapshot(message: bytes) -> Snapshot:
    """Return the snapshot of a message; raise FeedError for another version or layout."""
    body = unpack(message, _Snapshot)
    links = [_link_in(link) for link in body.links]
    paths = [_path_in(path) for path in body.paths]
    reporters = [ReporterState(*msgspec.structs.astuple(state)) for state in body.reporters]
    jobs = [_job_in(job) for job in body.jobs]
    return Snapshot(
        body.taken_ns,
        {link.link: link for link in links},
        {path.flow: path for path in paths},
        {(state.node_id, state.hw_id): state for state in reporters},
        {clock.node_id: ClockState(*msgspec.structs.astuple(clock)) for clock in body.clocks},
        {job.key: job for job in jobs},
        _statuses_in(body.statuses),
    )


def encode_records(records: Sequence[HopRecord]) -> bytes:
    """Return a batch of hop records as a message."""
    return pack([_record_out(record) for record in records])


def decode_records(message: bytes) -> tuple[HopRecord, ...]:
    """Return the hop records of a message; raise FeedError for another version or layout."""
    return tuple(_record_in(record) for record in unpack(message, list[_Record]))


def encode_status(status: CollectorStatus) -> bytes:
    """Return the collector's status as a message."""
    return pack(_Status(status.taken_ns, dict(status.counters), status.last_problem))


def decode_status(message: bytes) -> CollectorStatus:
    """Return the status of a message; raise FeedError for another version or layout."""
    body = unpack(message, _Status)
    return CollectorStatus(body.taken_ns, body.counters, body.last_problem)


def encode_notes(notes: Mapping[int, JobNote]) -> bytes:
    """Return what is told of jobs, by their numbers, as a message."""
    return pack([_Note(job, note.name, note.epoch, note.cells) for job, note in notes.items()])


def decode_notes(message: bytes) -> dict[int, JobNote]:
    """Return what a message tells of jobs; raise FeedError for another version or layout."""
    return {note.job: JobNote(note.name, note.epoch, note.cells) for note in unpack(message, list[_Note])}


def encode_statuses(statuses: Mapping[LinkKey, LinkStatus]) -> bytes:
    """Return what is told of links as a message; causes are cut to `MAX_CAUSE` characters."""
    return pack(_statuses_out(statuses))


def decode_statuses(message: bytes) -> dict[LinkKey, LinkStatus]:
    """Return what a message tells of links; raise FeedError for another version or layout."""
    return _statuses_in(unpack(message, list[_LinkStatus]))


def encode_watch(interval_ns: int) -> bytes:
    """Return the request for a snapshot every `interval_ns`."""
    return pack(_Watch(interval_ns))


def decode_watch(message: bytes) -> int:
    """Return a request's interval in ns; raise FeedError for another version or an interval out of range."""
    interval_ns = unpack(message, _Watch).interval_ns
    if not 0 < interval_ns <= MAX_INTERVAL_NS:
        raise FeedError(f"interval of {interval_ns} ns is not between 1 ns and one hour")
    return interval_ns


def encode_request() -> bytes:
    """Return a request that asks for nothing in particular, only in this version."""
    return pack(None)


def decode_request(message: bytes) -> None:
    """Raise FeedError unless the request is of this version."""
    unpack(message, type(None))


def _record_out(record: HopRecord) -> _Record:
    return _Record(
        record.received_ns,
        flow_out(record.flow),
        record.reporter_id,
        record.sequence,
        record.hop_index,
        record.hop_count,
        record.node_id,
        record.ingress_port,
        record.egress_port,
        record.hop_latency_ns,
        record.queue_id,
        record.queue_occupancy_frames,
        record.ingress_timestamp_ns,
        record.egress_timestamp_ns,
        record.tx_bytes_per_window,
        record.packet_id,
        record.kind,
        record.buffer_occupancy_frames,
    )


def _record_in(record: _Record) -> HopRecord:
    received_ns, flow, *rest = msgspec.structs.astuple(record)
    return HopRecord(received_ns, flow_in(flow), *rest)


def _link_out(link: LinkState) -> _Link:
    return _Link(
        link.link.src,
        link.link.dst,
        link.rate_bps,
        link.delay_mean_ns,
        link.delay_p50_ns,
        link.delay_p99_ns,
        link.queue_occupancy_frames,
        link.utilisation,
        link.available_bps,
        link.loss,
        link.age_ns,
        link.samples,
        link.source,
        link.delay_ewma_ns,
        link.delay_max_ns,
        link.delay_uncertainty_ns,
        link.loss_source,
        link.buffer_occupancy_frames,
        link.lost_packets,
    )


def _link_in(link: _Link) -> LinkState:
    src, dst, *rest = msgspec.structs.astuple(link)
    return LinkState(LinkKey(src, dst), *rest)


def _path_out(path: PathState) -> _Path:
    return _Path(
        flow_out(path.flow),
        path.switches,
        path.delay_ns,
        path.bottleneck_bps,
        path.age_ns,
        path.rate_bps,
        path.delay_p50_ns,
        path.delay_p99_ns,
        path.loss,
        path.samples,
        path.measured_bytes,
        path.is_young,
    )


def _path_in(path: _Path) -> PathState:
    flow, *rest = msgspec.structs.astuple(path)
    return PathState(flow_in(flow), *rest)


def _reporter_out(state: ReporterState) -> _Reporter:
    return _Reporter(
        state.node_id,
        state.hw_id,
        state.received,
        state.lost,
        state.late,
        state.duplicate,
        state.restarts,
        state.contested,
    )


def _clock_out(clock: ClockState) -> _Clock:
    return _Clock(clock.node_id, clock.group, clock.offset_ns, clock.drift_ppb, clock.uncertainty_ns)


def _statuses_out(statuses: Mapping[LinkKey, LinkStatus]) -> list[_LinkStatus]:
    return [
        _LinkStatus(key.src, key.dst, status.condition, status.age_ns, status.cause[:MAX_CAUSE])
        for key, status in statuses.items()
    ]


def _statuses_in(rows: Sequence[_LinkStatus]) -> dict[LinkKey, LinkStatus]:
    return {LinkKey(row.src, row.dst): LinkStatus(row.condition, row.age_ns, row.cause) for row in rows}


def _job_out(job: JobState) -> _Job:
    return _Job(
        job.key.job,
        job.key.switch,
        job.name,
        job.epoch,
        job.cells,
        job.is_leaf,
        job.items,
        job.items_per_s,
        job.reported,
        job.repeated,
        job.repeated_per_item,
        job.cells_used,
        job.wait_mean_ns,
        job.wait_p50_ns,
        job.wait_p99_ns,
        job.wait_max_ns,
        job.samples,
        job.age_ns,
        [_child_out(child) for child in job.children],
    )


def _job_in(job: _Job) -> JobState:
    number, switch, *rest, children = msgspec.structs.astuple(job)
    rest.append(tuple(_child_in(number, switch, child) for child in children))
    return JobState(JobKey(number, switch), *rest)


def _child_out(child: ChildState) -> _Child:
    return _Child(
        child.key.number,
        child.key.name,
        child.last,
        child.last_share,
        child.wait_mean_ns,
        child.wait_max_ns,
        child.wait_caused_ns,
        child.samples,
    )


def _child_in(job: int, switch: str, child: _Child) -> ChildState:
    number, name, *rest = msgspec.structs.astuple(child)
    return ChildState(ChildKey(job, switch, number, name), *rest)
