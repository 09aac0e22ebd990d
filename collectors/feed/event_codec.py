"""Events, rules and drops to bytes for the feed; framing as `collectors.feed.messages` has it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from collectors.errors import FeedError
from collectors.events.rules import Rule, check_names
from collectors.feed.messages import FlowRow, flow_in, flow_out, pack, unpack
from collectors.values import ChildKey, DropRecord, Event, Evidence, FlowKey, JobKey, Phase, ReporterKey, Subject
from dataplane.topology.values import LinkKey


class _LinkSubject(msgspec.Struct, array_like=True, frozen=True, tag="link"):
    src: str
    dst: str


class _FlowSubject(msgspec.Struct, array_like=True, frozen=True, tag="flow"):
    flow: FlowRow


class _ReporterSubject(msgspec.Struct, array_like=True, frozen=True, tag="reporter"):
    node_id: int
    hw_id: int


class _JobSubject(msgspec.Struct, array_like=True, frozen=True, tag="job"):
    job: int
    switch: str


class _ChildSubject(msgspec.Struct, array_like=True, frozen=True, tag="child"):
    job: int
    switch: str
    number: int
    name: str


_Subject = _LinkSubject | _FlowSubject | _ReporterSubject | _JobSubject | _ChildSubject


class _Evidence(msgspec.Struct, array_like=True, frozen=True):
    time_ns: int
    figure: str
    value: float


class _Event(msgspec.Struct, array_like=True, frozen=True):
    time_ns: int
    rule: str
    subject: _Subject
    figure: str
    value: float
    threshold: float
    phase: Phase
    evidence: list[_Evidence]


class _Drop(msgspec.Struct, array_like=True, frozen=True):
    received_ns: int
    reporter_id: int
    sequence: int
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    queue_id: int | None
    reason: int
    flow: FlowRow | None
    timestamp_ns: int | None
    tracked: bool


def encode_events(events: Sequence[Event]) -> bytes:
    """Return events as a message."""
    return pack([_event_out(event) for event in events])


def decode_events(message: bytes) -> tuple[Event, ...]:
    """Return the events of a message; raise FeedError for another version or layout."""
    return tuple(_event_in(event) for event in unpack(message, list[_Event]))


def encode_drops(drops: Sequence[DropRecord]) -> bytes:
    """Return drop records as a message."""
    return pack([_drop_out(drop) for drop in drops])


def decode_drops(message: bytes) -> tuple[DropRecord, ...]:
    """Return the drop records of a message; raise FeedError for another version or layout."""
    return tuple(_drop_in(drop) for drop in unpack(message, list[_Drop]))


def encode_rules(rules: Sequence[Rule]) -> bytes:
    """Return rules as a message."""
    return pack(list(rules))


def decode_rules(message: bytes) -> tuple[Rule, ...]:
    """Return the rules of a message; raise FeedError for another version, layout, or rules that make no sense."""
    rules = unpack(message, tuple[Rule, ...])
    try:
        check_names(rules)
    except ValueError as error:
        raise FeedError(str(error)) from error
    return rules


def encode_events_request(since_ns: int | None) -> bytes:
    """Return the request for events, those kept since a time before the new ones."""
    return pack(since_ns)


def decode_events_request(message: bytes) -> int | None:
    """Return since when kept events are asked for, None for none; raise FeedError for another version."""
    since_ns: int | None = unpack(message, int | None)  # type: ignore[arg-type]  # a union is no class to mypy
    return since_ns


def _subject_out(subject: Subject) -> _Subject:
    match subject:
        case LinkKey(src, dst):
            return _LinkSubject(src, dst)
        case ReporterKey(node_id, hw_id):
            return _ReporterSubject(node_id, hw_id)
        case JobKey(job, switch):
            return _JobSubject(job, switch)
        case ChildKey(job, switch, number, name):
            return _ChildSubject(job, switch, number, name)
        case FlowKey():
            return _FlowSubject(flow_out(subject))


def _subject_in(subject: _Subject) -> Subject:
    match subject:
        case _LinkSubject():
            return LinkKey(subject.src, subject.dst)
        case _ReporterSubject():
            return ReporterKey(subject.node_id, subject.hw_id)
        case _JobSubject():
            return JobKey(subject.job, subject.switch)
        case _ChildSubject():
            return ChildKey(subject.job, subject.switch, subject.number, subject.name)
        case _FlowSubject():
            return flow_in(subject.flow)


def _event_out(event: Event) -> _Event:
    return _Event(
        event.time_ns,
        event.rule,
        _subject_out(event.subject),
        event.figure,
        event.value,
        event.threshold,
        event.phase,
        [_Evidence(row.time_ns, row.figure, row.value) for row in event.evidence],
    )


def _event_in(event: _Event) -> Event:
    return Event(
        event.time_ns,
        event.rule,
        _subject_in(event.subject),
        event.figure,
        event.value,
        event.threshold,
        event.phase,
        tuple(Evidence(row.time_ns, row.figure, row.value) for row in event.evidence),
    )


def _drop_out(drop: DropRecord) -> _Drop:
    return _Drop(
        drop.received_ns,
        drop.reporter_id,
        drop.sequence,
        drop.node_id,
        drop.ingress_port,
        drop.egress_port,
        drop.queue_id,
        drop.reason,
        None if drop.flow is None else flow_out(drop.flow),
        drop.timestamp_ns,
        drop.tracked,
    )


def _drop_in(drop: _Drop) -> DropRecord:
    return DropRecord(
        drop.received_ns,
        drop.reporter_id,
        drop.sequence,
        drop.node_id,
        drop.ingress_port,
        drop.egress_port,
        drop.queue_id,
        drop.reason,
        None if drop.flow is None else flow_in(drop.flow),
        drop.timestamp_ns,
        drop.tracked,
    )
