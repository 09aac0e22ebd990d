"""Snapshots, statuses and notes as messages: every value survives, what makes no sense is a clear error."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from ipaddress import IPv4Address, IPv6Address
from itertools import product
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Counters
from collectors.decode.stitch import SeenPath
from collectors.events.rules import ChangeSettings, Rule
from collectors.feed import events_pb2, keys_pb2, links_pb2, records_pb2
from collectors.feed import feed_pb2 as messages
from collectors.feed.events import events_message, events_of, rules_message, rules_of
from collectors.feed.records import drops_message, drops_of, records_message, records_of
from collectors.feed.snapshots import (
    notes_message,
    notes_of,
    snapshot_message,
    snapshot_of,
    status_message,
    status_of,
)
from collectors.feed.statuses import statuses_message, statuses_of
from collectors.native.accumulator import NativeStore
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.state.builder import NetworkStateBuilder
from collectors.state.path_states import PathStates, columns_of
from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    CollectorStatus,
    DelaySource,
    DropRecord,
    Event,
    Evidence,
    FlowKey,
    HopRecord,
    JobKey,
    JobNote,
    JobState,
    LinkCondition,
    LinkState,
    LinkStatus,
    LossSource,
    PathState,
    Phase,
    RecordKind,
    ReporterKey,
    ReporterState,
    Snapshot,
)
from dataplane.clock import VirtualClock
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import parse
from dataplane.topology.values import LinkKey
from tests.collectors.feed.drawn import CLOCKS, JOBS, LINKS, MAYBE, NUMBER, PATHS, REPORTERS, SIGNED, SMALL, STATUSES
from tests.collectors.reports import build_topology

FLOW_COLUMNS = ("addresses", "src", "dst", "protocol", "src_port", "dst_port")
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)
PATH = PathState(FLOW, ("s1", "s2"), 10, 20, 30)
READERS: dict[type[Message], Callable[[Any], object]] = {
    messages.Snapshot: snapshot_of,
    messages.CollectorStatus: status_of,
    messages.JobNotes: notes_of,
    links_pb2.LinkStatuses: statuses_of,
    records_pb2.HopRecords: records_of,
    records_pb2.DropRecords: drops_of,
    events_pb2.Events: events_of,
    events_pb2.RuleSet: rules_of,
}


def empty(**states: Any) -> Snapshot:
    return Snapshot(**{"taken_ns": 1, "links": {}, "paths": {}, "reporters": {}, **states})


@given(
    SIGNED,
    st.lists(LINKS, max_size=3),
    st.lists(PATHS, max_size=4),
    st.lists(REPORTERS, max_size=4),
    st.lists(CLOCKS, max_size=3),
    st.lists(JOBS, max_size=3),
    STATUSES,
)
def test_snapshots_survive(
    taken_ns: int,
    links: list[LinkState],
    paths: list[PathState],
    reporters: list[ReporterState],
    clocks: list[ClockState],
    jobs: list[JobState],
    statuses: dict[LinkKey, LinkStatus],
) -> None:
    snapshot = Snapshot(
        taken_ns,
        {link.link: link for link in links},
        {path.flow: path for path in paths},
        {(state.node_id, state.hw_id): state for state in reporters},
        {clock.node_id: clock for clock in clocks},
        {job.key: job for job in jobs},
        statuses,
    )
    data = snapshot_message(snapshot).SerializeToString()
    assert snapshot_of(messages.Snapshot.FromString(data)) == snapshot


@given(SIGNED, st.dictionaries(st.text(max_size=9), NUMBER, max_size=4), st.none() | st.text(max_size=9))
def test_status_survives(taken_ns: int, counters: dict[str, int], problem: str | None) -> None:
    status = CollectorStatus(taken_ns, counters, problem)
    data = status_message(status).SerializeToString()
    assert status_of(messages.CollectorStatus.FromString(data)) == status


@given(st.dictionaries(SMALL, st.builds(JobNote, st.text(max_size=9), MAYBE, MAYBE), max_size=3))
def test_names_of_jobs_survive(notes: dict[int, JobNote]) -> None:
    data = notes_message(notes).SerializeToString()
    assert notes_of(messages.JobNotes.FromString(data)) == notes


def test_fields_of_each_value_match_its_message() -> None:
    """A field added to a shared value must come with one in the .proto."""
    for value, message, others in (
        (LinkState, links_pb2.Links, {"link": "links"}),
        (LinkStatus, links_pb2.LinkStatuses, {"link": "links"}),
        (HopRecord, records_pb2.HopRecords, {"flow": "flows flow"}),
        (DropRecord, records_pb2.DropRecords, {"flow": "flows flow"}),
        (PathState, messages.Paths, {"flow": "flows same_flows", "switches": "routes route"}),
        (ReporterState, messages.Reporters, {}),
        (ClockState, messages.Clocks, {}),
        (
            Snapshot,
            messages.Snapshot,
            {
                "taken_ns": "taken_ns epoch number since",
                "links": "links changed_links",
                "reporters": "reporters same_reporters",
            },
        ),
        (CollectorStatus, messages.CollectorStatus, {}),
        (Evidence, events_pb2.Evidence, {}),
        (Event, events_pb2.Event, {"subject": "link flow reporter job child"}),
        (JobNote, messages.JobNote, {"job": "job"}),
        (JobState, messages.Job, {"key": "job switch"}),
    ):
        own = {field.name for field in fields(value)} | others.keys()
        wanted = {name for field in own for name in others.get(field, field).split()}
        assert wanted == set(message.DESCRIPTOR.fields_by_name), value


def test_flows_of_one_way_share_it() -> None:
    paths = [PATH, PathState(FlowKey(FLOW.dst, FLOW.src, 6, 3, 4), ("s1", "s2"), 11, 20, 30)]
    message = snapshot_message(empty(paths={path.flow: path for path in paths}))
    assert list(message.paths.routes.switches) == ["s1", "s2"]
    assert list(message.paths.routes.lengths) == [2]
    assert len(message.paths.flows.addresses) == 2
    first, second = snapshot_of(message).paths.values()
    assert first.switches is second.switches


def flows_of_every_kind() -> Iterator[tuple[FlowKey, bool]]:
    """Yield flows of either family, from and to hosts that the topology has or lacks; whether packets were counted."""
    four = [IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), IPv4Address("10.9.9.9")]
    six = [IPv6Address("2001:db8::1"), IPv6Address((1 << 127) + 10)]
    pairs: list[tuple[Any, Any]] = [*product(four, four), *product(six, six)]
    for number, ((src, dst), protocol) in enumerate(product(pairs, (6, 17))):
        yield FlowKey(src, dst, protocol, 65_535 - number, number), number % 3 > 0


@pytest.mark.parametrize("measured", [False, True])
def test_native_paths_are_sent_without_single_flow_states(measured: bool) -> None:
    topology, clock, settings, counters = build_topology(), VirtualClock(), StateSettings(), Counters()
    store = NativeStore(topology, settings, counters)
    stitcher = PlainStitcher(topology, settings, counters)
    builder = NetworkStateBuilder(topology, clock, settings, counters, store, stitcher)
    for number, (flow, is_counted) in enumerate(flows_of_every_kind() if measured else ()):
        clock.advance_to(number * 3_000_000)
        way = ("s1", "s2", "s3")[: 1 + number % 3]
        if is_counted:
            store.take_packet(flow, 1000 + number, clock.now_ns())
        delay_ns = number * 1000 if number % 2 else None
        store.take_path(SeenPath(flow, way, tuple(map(LinkKey, way, way[1:])), None, clock.now_ns(), delay_ns))
    snapshot = builder.snapshot()
    assert isinstance(snapshot.paths, PathStates)
    message = snapshot_message(snapshot)
    got = snapshot_of(message).paths
    assert snapshot.paths._all is None, "nobody has looked at one"
    assert list(got.items()) == list(snapshot.paths.items())
    assert snapshot_of(snapshot_message(replace(snapshot, paths=dict(got)))).paths == got
    assert len(got) == (16 if measured else 0), (
        "those whose hosts are not beside the ends of their way are counted only"
    )
    assert {None, True} == {path.rate_bps and path.rate_bps > 0 for path in got.values()} or not measured


@pytest.mark.parametrize(
    ("column", "data", "problem"),
    [
        ("route", b"", "Paths.route has 0 bytes for 1 rows"),
        ("route", b"\1", "Paths.route: index 1 is not below 1"),
        ("route", b"\xff", "Paths.route: an entry is -1"),
        ("delay_ns", bytes(3), "Paths.delay_ns has 3 bytes for 1 rows"),
        ("delay_ns", b"\xff", "Paths.delay_ns: an entry is -1"),
        ("is_young", b"", "Paths.is_young has 0 bytes for 1 rows"),
        ("is_young", b"\2", "Paths.is_young: 2 is more than 1"),
        ("delay_p50_ns", b"\xfe", "Paths.delay_p50_ns: an entry is -2"),
        ("loss", bytes(4), "Paths.loss has 4 bytes for 1 rows"),
        ("gap_variation", struct.pack("<d", math.nan), "Paths.gap_variation: an entry is NaN"),
    ],
)
def test_paths_that_make_no_sense_are_refused(column: str, data: bytes, problem: str) -> None:
    message = snapshot_message(empty(paths={FLOW: PATH}))
    setattr(message.paths, column, data)
    with pytest.raises(MessageError, match=f"^{problem}$"):
        snapshot_of(message)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"rows": 2**32 - 1}, "FlowColumns.src has 1 bytes for 4294967295 rows"),
        ({"rows": 0}, "FlowColumns.src has 1 bytes for 0 rows"),
        ({"src": b"\2"}, "FlowColumns.src: index 2 is not below 2"),
        ({"dst": b""}, "FlowColumns.dst has 0 bytes for 1 rows"),
        ({"protocol": b"\0\1"}, "FlowColumns.protocol: 256 is more than 255"),
        ({"src_port": b"\0\0\1\0"}, "FlowColumns.src_port: 65536 is more than 65535"),
        ({"dst_port": b"\xff"}, "FlowColumns.dst_port: an entry is -1"),
        ({"addresses": [bytes(4), bytes(5)]}, "an address of 5 bytes is neither IPv4 nor IPv6"),
        ({"addresses": [bytes(4), bytes(4)]}, "an address appears twice in one message"),
    ],
)
def test_flows_that_make_no_sense_are_refused(columns: dict[str, Any], problem: str) -> None:
    message = snapshot_message(empty(paths={FLOW: PATH}))
    own = {"rows": 1, **{name: getattr(message.paths.flows, name) for name in FLOW_COLUMNS}}
    message.paths.flows.CopyFrom(keys_pb2.FlowColumns(**(own | columns)))
    with pytest.raises(MessageError, match=f"^{problem}$"):
        snapshot_of(message)


def test_a_flow_that_stands_twice_is_refused() -> None:
    paths = [PATH, PathState(FlowKey(FLOW.dst, FLOW.src, 17, 1, 2), ("s1", "s2"), 11, 20, 30)]
    message = snapshot_message(empty(paths={path.flow: path for path in paths}))
    message.paths.flows.dst, message.paths.flows.src = b"\1\1", b"\0\0"
    with pytest.raises(MessageError, match="a flow appears twice in one message"):
        snapshot_of(message)


def test_equal_routes_of_successive_messages_are_the_same_object() -> None:
    snapshot = empty(paths={FLOW: PATH})
    first, second = (snapshot_of(snapshot_message(snapshot)).paths for _ in range(2))
    assert columns_of(first).routes is columns_of(second).routes


def test_routes_with_inconsistent_lengths_are_refused() -> None:
    for lengths, hops, problem in (
        ([3], [0, 1], "Routes has 2 hops, but its lengths add up to 3"),
        ([2**32 - 1] * 3, [], f"Routes has 0 hops, but its lengths add up to {3 * (2**32 - 1)}"),
        ([2], [0, 2], "Routes.hops: index 2 is not below 2"),
    ):
        message = snapshot_message(empty(paths={FLOW: PATH}))
        del message.paths.routes.lengths[:], message.paths.routes.hops[:]
        message.paths.routes.lengths.extend(lengths)
        message.paths.routes.hops.extend(hops)
        with pytest.raises(MessageError, match=f"^{problem}$"):
            snapshot_of(message)


def test_what_stands_twice_is_refused() -> None:
    reporter = ReporterState(1, 2, 3, 4, 5, 6, 7)
    message = snapshot_message(empty(reporters={(1, 2): reporter}))
    message.reporters.MergeFrom(message.reporters)
    with pytest.raises(MessageError, match="a reporter appears twice in one message"):
        snapshot_of(message)
    notes = notes_message({3: JobNote("a")})
    notes.notes.add(job=3, name="b")
    with pytest.raises(MessageError, match="a job appears twice in one message"):
        notes_of(notes)


def test_a_field_of_a_newer_version_does_no_harm() -> None:
    snapshot = empty(reporters={(1, 2): ReporterState(1, 2, 3, 4, 5, 6, 7)})
    newer = snapshot_message(snapshot).SerializeToString() + b"\xf8\x07\x05"  # field 127, a number
    assert snapshot_of(parse(messages.Snapshot, newer)) == snapshot


def full() -> list[Message]:
    """Return one message of each kind, with something in most fields."""
    key, reporter = LinkKey("s1", "s2"), ReporterState(1, 2, 3, 4, 5, 6, 7)
    figures: tuple[Any, ...] = (9, 8, 7, 6, 0.5, 0.25, 5, 0.125, 4, 3, DelaySource.STAMPS, 2, 1)
    link = LinkState(key, *(*figures, None, LossSource.DROP_REPORTS, None, 7))
    child = ChildState(ChildKey(3, "s1", 0, "h1"), 1, 0.5, 2, 3, 4, 5)
    job = JobState(JobKey(3, "s1"), "resnet", 1, 2, True, 3, 4.0, 5, 6, 0.5, 7, 8, 9, 10, 11, 12, 13, (child,))
    statuses = {key: LinkStatus(LinkCondition.DOWN, 5, "no light")}
    snapshot = Snapshot(
        1, {key: link}, {FLOW: PATH}, {(1, 2): reporter}, {7: ClockState(7, 1, -5, -6, 8)}, {job.key: job}, statuses
    )
    event = Event(1, "r", ReporterKey(1, 2), "lost", 3.0, 2.0, Phase.RAISED, (Evidence(1, "lost", 3.0),))
    rules = (Rule(name="a", figure="loss", above=0.5), Rule(name="b", figure="samples", change=ChangeSettings()))
    return [
        snapshot_message(snapshot),
        status_message(CollectorStatus(1, {"reports": 2}, "bad")),
        notes_message({3: JobNote("a", 1, 2)}),
        statuses_message(statuses),
        records_message([HopRecord(1, FLOW, 2, 3, 0, 2, 7, 1, 2, 3, 4, 5, 6, 7, 8, 9, RecordKind.MX, 1)]),
        drops_message([DropRecord(1, 2, 3, 4, 5, 6, 7, 8, FLOW, 9, True)]),
        events_message([event]),
        rules_message(rules),
    ]


def look(message: type[Message], data: bytes) -> bool:
    """Read bytes as a client does, every value included; return whether they can be read."""
    reason = ""
    try:
        value = READERS[message](parse(message, data))
    except MessageError as error:
        reason = str(error)
    else:
        assert repr(value)
    assert len(reason.splitlines()) <= 1
    return not reason


@pytest.mark.parametrize("message", full(), ids=lambda message: message.DESCRIPTOR.name)
def test_cut_messages_are_read_or_refused_in_a_line(message: Message) -> None:
    data = message.SerializeToString()
    assert look(type(message), data)
    assert {look(type(message), data[:size]) for size in range(len(data))} == {True, False}


@given(junk=st.binary(max_size=60), at=st.integers(0, 2000), flip=st.integers(1, 255))
def test_any_bytes_are_read_or_refused_in_a_line(junk: bytes, at: int, flip: int) -> None:
    for message in full():
        damaged = bytearray(message.SerializeToString())
        damaged[at % len(damaged)] ^= flip
        for data in (junk, bytes(damaged)):
            look(type(message), data)
