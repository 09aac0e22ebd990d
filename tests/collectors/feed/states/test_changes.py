"""Changes of states: whoever reads them, however rarely, has the states themselves."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.feed import feed_pb2
from collectors.feed.snapshots import snapshot_message
from collectors.feed.states.changes import NumberedState, NumberedStates, StateReader
from collectors.state.link_states import LinkStates, link_states_of
from collectors.values import DelaySource, FlowKey, LinkState, PathState, ReporterState, Snapshot
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey
from tests.collectors.feed.drawn import JOBS, LINKS, PATHS, REPORTERS, STATUSES

KEYS = [LinkKey("s1", "s2"), LinkKey("s2", "s1"), LinkKey("s2", "h1")]
PLACES = {key: place for place, key in enumerate(KEYS)}
SECOND_NS = 1_000_000_000


class Clock:
    """A clock that the test sets."""

    now_ns = 0


def numbered(clock: Clock) -> NumberedStates:
    return NumberedStates(lambda snapshot: snapshot_message(snapshot).SerializeToString(), lambda: clock.now_ns)


def read(reader: StateReader, state: NumberedState) -> tuple[Snapshot, feed_pb2.Snapshot]:
    """Return what a reader makes of a state, and the message that it gets."""
    request = reader.request
    message = feed_pb2.Snapshot.FromString(state.message(request.epoch, request.since))
    return reader.read(message), message


def links_of(states: list[LinkState]) -> LinkStates:
    keyed = {key: replace(state, link=key) for key, state in zip(KEYS, states, strict=True)}
    return LinkStates(PLACES, link_states_of(keyed).columns)


AGES = st.none() | st.integers(0, 10**12)
SOME_LINKS = st.lists(
    st.builds(lambda state, age_ns: replace(state, age_ns=age_ns), LINKS, AGES), min_size=3, max_size=3
).map(links_of)
SNAPSHOTS = st.builds(
    lambda taken_ns, links, paths, reporters, jobs, statuses: Snapshot(
        taken_ns,
        links,
        {path.flow: path for path in paths},
        {(state.node_id, state.hw_id): state for state in reporters},
        {},
        {job.key: job for job in jobs},
        statuses,
    ),
    st.integers(0, 10**12),
    SOME_LINKS,
    st.lists(PATHS, max_size=2),
    st.lists(REPORTERS, max_size=2),
    st.lists(JOBS, max_size=1),
    STATUSES,
)


@given(st.lists(SNAPSHOTS, min_size=2, max_size=3), st.data())
def test_readers_of_changes_have_the_states(drawn: list[Snapshot], data: st.DataObject) -> None:
    clock, readers = Clock(), [StateReader(), StateReader()]
    states = numbered(clock)
    for _ in range(6):
        clock.now_ns += SECOND_NS
        state = states.take(data.draw(st.sampled_from(drawn)))
        for reader in readers:
            # A slow reader misses some.
            if data.draw(st.booleans()):
                assert read(reader, state)[0] == state.snapshot


def snapshot(taken_ns: int, rates_bps: tuple[int, int, int], **others: object) -> Snapshot:
    """Return a snapshot of three links whose newest sample is of time 0."""
    states = [
        LinkState(key, rate, 1, 1, 1, 0.0, 0.0, rate, None, taken_ns, 1, DelaySource.STAMPS)
        for key, rate in zip(KEYS, rates_bps, strict=True)
    ]
    return replace(Snapshot(taken_ns, links_of(states), {}, {}), **others)  # type: ignore[arg-type]  # fields


def test_only_changed_links_travel() -> None:
    clock, reader = Clock(), StateReader()
    states = numbered(clock)
    _, whole = read(reader, states.take(snapshot(0, (1, 2, 3))))
    assert (whole.since, whole.number, len(whole.links.links.src)) == (0, 1, 3)
    now, changes = read(reader, states.take(snapshot(5, (1, 9, 3))))
    assert (changes.since, changes.changed_links.rows, len(changes.links.links.src)) == (1, 1, 0)
    assert [state.rate_bps for state in now.links.values()] == [1, 9, 3]
    assert [state.age_ns for state in now.links.values()] == [5, 5, 5], "age grows without a message"
    _, nothing = read(reader, states.take(snapshot(8, (1, 9, 3))))
    assert nothing.changed_links.rows == 0


def test_counts_of_reporters_travel_once_a_second() -> None:
    clock, reader = Clock(), StateReader()
    states = numbered(clock)
    first, later = ({(1, 0): ReporterState(1, 0, count, 0, 0, 0, 0, 0)} for count in (1, 2))
    read(reader, states.take(snapshot(0, (1, 2, 3), reporters=first)))
    clock.now_ns = SECOND_NS - 1
    assert read(reader, states.take(snapshot(0, (1, 2, 3), reporters=later)))[0].reporters == first
    clock.now_ns = SECOND_NS
    assert read(reader, states.take(snapshot(0, (1, 2, 3), reporters=later)))[0].reporters == later


def test_flows_that_stay_the_same_do_not_travel_again() -> None:
    path = PathState(FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2), ("s1", "s2"), 10, 20, 30)
    reader, states = StateReader(), numbered(Clock())
    read(reader, states.take(snapshot(0, (1, 2, 3), paths={path.flow: path})))
    aged = replace(path, age_ns=7)
    now, message = read(reader, states.take(snapshot(1, (1, 2, 3), paths={path.flow: aged})))
    assert message.paths.same_flows
    assert not message.paths.flows.addresses
    assert now.paths == {path.flow: aged}


def test_overtaken_answer_does_not_take_the_reader_back() -> None:
    reader, states = StateReader(), numbered(Clock())
    first = states.take(snapshot(0, (1, 2, 3)))
    late = feed_pb2.Snapshot.FromString(first.message())
    read(reader, first)
    now, _ = read(reader, states.take(snapshot(5, (1, 9, 3))))
    assert reader.read(late) is now
    newest, changes = read(reader, states.take(snapshot(8, (1, 10, 3))))
    assert (changes.since, newest.taken_ns) == (2, 8)


def test_states_of_another_run_are_sent_whole() -> None:
    reader, before, after = StateReader(), numbered(Clock()), numbered(Clock())
    read(reader, before.take(snapshot(0, (1, 2, 3))))
    now, message = read(reader, after.take(snapshot(1, (4, 5, 6))))
    assert message.since == 0
    assert [state.rate_bps for state in now.links.values()] == [4, 5, 6]


def test_changes_of_a_state_that_was_not_sent_are_refused() -> None:
    states = numbered(Clock())
    states.take(snapshot(0, (1, 2, 3)))
    state = states.take(snapshot(1, (1, 2, 4)))
    message = feed_pb2.Snapshot.FromString(state.message(state.epoch, 1))
    with pytest.raises(MessageError, match="changes of a state that was not sent"):
        StateReader().read(message)
