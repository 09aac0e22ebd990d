"""Feed messages: every value survives, other versions and damage are clear errors."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.errors import FeedError
from collectors.feed import codec
from collectors.feed.messages import VERSION
from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    CollectorStatus,
    DelaySource,
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
    ReporterState,
    Snapshot,
)
from dataplane.topology.values import LinkKey

NUMBER = st.integers(0, 2**63 - 1)
SMALL = st.integers(0, 65535)
MAYBE = st.none() | NUMBER
FLOWS = st.builds(FlowKey, st.ip_addresses(), st.ip_addresses(), st.integers(0, 255), SMALL, SMALL)
KEYS = st.builds(LinkKey, st.text(max_size=5), st.text(max_size=5))
RATIO = st.floats(0, 1)
MAYBE_RATIO = st.none() | RATIO
LINKS = st.builds(
    LinkState,
    *(KEYS, *[NUMBER] * 4, RATIO, RATIO, NUMBER, MAYBE_RATIO, MAYBE, NUMBER, st.sampled_from(DelaySource)),
    *(*[MAYBE] * 3, st.none() | st.sampled_from(LossSource), MAYBE_RATIO),
)
PATHS = st.builds(
    PathState,
    *(FLOWS, st.lists(st.text(max_size=4), max_size=4).map(tuple), *[NUMBER] * 3, *[MAYBE] * 3, MAYBE_RATIO, NUMBER),
)
CLOCKS = st.builds(ClockState, NUMBER, NUMBER, *[st.integers(-(2**63), 2**63 - 1)] * 2, NUMBER)
REPORTERS = st.builds(ReporterState, *[NUMBER] * 7)
MAYBE_TEXT = st.none() | st.text(max_size=5)


def job(key: JobKey, *figures: object, children: list[tuple[Any, ...]]) -> JobState:
    """Return a job's state; each child comes as number, name and figures."""
    states = [ChildState(ChildKey(key.job, key.switch, number, name), *rest) for number, name, *rest in children]
    values: list[Any] = [*figures, tuple(states)]
    return JobState(key, *values)


CHILDREN = st.tuples(SMALL, st.text(max_size=5), NUMBER, RATIO, MAYBE, MAYBE, NUMBER, NUMBER)
JOBS = st.builds(
    job,
    *(st.builds(JobKey, SMALL, st.text(max_size=5)), MAYBE_TEXT, MAYBE, MAYBE, st.booleans(), NUMBER, MAYBE_RATIO),
    *(*[NUMBER] * 2, RATIO, *[NUMBER] * 7),
    children=st.lists(CHILDREN, max_size=3),
)
RECORDS = st.builds(HopRecord, NUMBER, FLOWS, NUMBER, NUMBER, SMALL, MAYBE, NUMBER, *[MAYBE] * 8, NUMBER)


STATUSES = st.dictionaries(
    KEYS,
    st.builds(LinkStatus, st.sampled_from(LinkCondition), NUMBER, st.text(max_size=9)),
    max_size=3,
)


@given(st.lists(RECORDS, max_size=5))
def test_records_survive(records: list[HopRecord]) -> None:
    assert codec.decode_records(codec.encode_records(records)) == tuple(records)


@given(
    NUMBER,
    st.lists(LINKS, max_size=4),
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
        {one.key: one for one in jobs},
        statuses,
    )
    assert codec.decode_snapshot(codec.encode_snapshot(snapshot)) == snapshot


@given(NUMBER, st.dictionaries(st.text(max_size=9), NUMBER, max_size=4), st.none() | st.text(max_size=9))
def test_status_survives(taken_ns: int, counters: dict[str, int], problem: str | None) -> None:
    status = CollectorStatus(taken_ns, counters, problem)
    assert codec.decode_status(codec.encode_status(status)) == status


def test_every_field_of_a_value_is_in_its_message() -> None:
    """A field added to a shared value must come with a new layout and version."""
    for value, row in (
        (HopRecord, codec._Record),
        (PathState, codec._Path),
        (ReporterState, codec._Reporter),
        (ClockState, codec._Clock),
        (CollectorStatus, codec._Status),
        (Snapshot, codec._Snapshot),
    ):
        assert [field.name for field in fields(value)] == list(row.__struct_fields__)
    assert [field.name for field in fields(JobState)][1:] == list(codec._Job.__struct_fields__)[2:]
    assert [field.name for field in fields(ChildState)][1:] == list(codec._Child.__struct_fields__)[2:]
    assert [field.name for field in fields(JobNote)] == list(codec._Note.__struct_fields__)[1:]
    assert [field.name for field in fields(LinkStatus)] == list(codec._LinkStatus.__struct_fields__)[2:]
    assert [field.name for field in fields(LinkState)][1:] == list(codec._Link.__struct_fields__)[2:]


@given(st.dictionaries(SMALL, st.builds(JobNote, st.text(max_size=9), MAYBE, MAYBE), max_size=3))
def test_names_of_jobs_survive(notes: dict[int, JobNote]) -> None:
    assert codec.decode_notes(codec.encode_notes(notes)) == notes


@given(STATUSES)
def test_statuses_of_links_survive(statuses: dict[LinkKey, LinkStatus]) -> None:
    assert codec.decode_statuses(codec.encode_statuses(statuses)) == statuses


def test_a_cause_is_cut_where_a_message_would_grow_without_bound() -> None:
    key = LinkKey("a", "b")
    told = codec.decode_statuses(codec.encode_statuses({key: LinkStatus(LinkCondition.DOWN, 0, 10_000 * "x")}))
    assert len(told[key].cause) == codec.MAX_CAUSE


def test_requests_survive_and_intervals_have_bounds() -> None:
    codec.decode_request(codec.encode_request())
    assert codec.decode_watch(codec.encode_watch(5)) == 5
    for interval_ns in (0, -1, 3_600_000_000_001):
        with pytest.raises(FeedError, match="interval"):
            codec.decode_watch(codec.encode_watch(interval_ns))


def test_another_version_is_a_clear_error_whatever_its_body() -> None:
    message = msgspec.msgpack.encode((VERSION + 1, {"a": [1]}))
    for decode in (codec.decode_snapshot, codec.decode_records, codec.decode_status, codec.decode_watch):
        with pytest.raises(
            FeedError, match=f"the peer speaks version {VERSION + 1}, this side {VERSION}: update one of"
        ):
            decode(message)


def test_an_address_of_odd_length_is_a_clear_error() -> None:
    flow = (b"abc", b"abcd", 1, 2, 3)
    message = msgspec.msgpack.encode((VERSION, (0, [], [(flow, [], 1, 2, 3, *[None] * 4, 0)], [], [], [], [])))
    with pytest.raises(FeedError, match="3 bytes is neither IPv4 nor IPv6"):
        codec.decode_snapshot(message)


@given(junk=st.binary(max_size=60), at=st.integers(0, 200), flip=st.integers(1, 255))
def test_any_bytes_decode_or_raise_feed_error(junk: bytes, at: int, flip: int) -> None:
    snapshot = Snapshot(1, {}, {}, {(1, 2): ReporterState(1, 2, 3, 4, 5, 6, 7)})
    damaged = bytearray(codec.encode_snapshot(snapshot))
    damaged[at % len(damaged)] ^= flip
    for message in (junk, bytes(damaged)):
        for decode in (codec.decode_snapshot, codec.decode_records, codec.decode_status, codec.decode_watch):
            try:
                decode(message)
            except FeedError:
                continue
