"""The session as a value: RFC 5880's state table, valid messages of the neighbour, and agreement of two ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.switch.hellos import session
from dataplane.switch.hellos.frames import discriminator
from dataplane.switch.hellos.session import HelloDrop, Session
from dataplane.switch.ports.states import Diagnostic, HelloSettings, HelloState
from dataplane.wire.bfd import Bfd, State

DOWN, INIT, UP, ADMIN = HelloState.DOWN, HelloState.INIT, HelloState.UP, HelloState.ADMIN_DOWN
OURS, THEIRS = discriminator(1, 4), discriminator(2, 7)
MS = 1_000_000
settings = st.builds(
    HelloSettings, interval_ns=st.integers(1, 5_000).map(lambda ms: ms * MS), multiplier=st.integers(1, 255)
)


def make(state: HelloState = DOWN, **changes: object) -> Session:
    made = Session(OURS, HelloSettings(), state)
    return replace(made, **changes) if changes else made  # type: ignore[arg-type]


def word(state: State, *, yours: int = OURS, mine: int = THEIRS, diagnostic: int = 0) -> Bfd:
    return Bfd(state, 3, mine, yours, 50_000, 50_000, diagnostic=diagnostic)


@pytest.mark.parametrize(
    ("own", "heard", "then"),
    [  # RFC 5880, section 6.8.6, line by line
        (DOWN, State.DOWN, INIT),
        (DOWN, State.INIT, UP),
        (DOWN, State.UP, DOWN),
        (INIT, State.DOWN, INIT),
        (INIT, State.INIT, UP),
        (INIT, State.UP, UP),
        (UP, State.DOWN, DOWN),
        (UP, State.INIT, UP),
        (UP, State.UP, UP),
        (DOWN, State.ADMIN_DOWN, DOWN),
        (INIT, State.ADMIN_DOWN, DOWN),
        (UP, State.ADMIN_DOWN, DOWN),
    ],
)
def test_states_follow_the_table(own: HelloState, heard: State, then: HelloState) -> None:
    before = make(own, since_ns=5)
    after = session.hear(before, word(heard), 9)
    assert after.state is then
    assert after.since_ns == (5 if then is own else 9)
    assert (after.remote, after.remote_state.name) == (THEIRS, heard.name)
    if own is UP and then is DOWN:
        assert after.diagnostic is Diagnostic.NEIGHBOR_SIGNALED_DOWN


def test_two_ends_come_up_in_three_words_and_tell_each_other() -> None:
    ours, theirs = make(), Session(THEIRS, HelloSettings(20 * MS, 5))
    assert ours.packet().desired_min_tx_us == session.SLOW_US
    theirs = session.hear(theirs, ours.packet(), 1)
    ours = session.hear(ours, theirs.packet(), 2)
    theirs = session.hear(theirs, ours.packet(), 3)
    assert (ours.state, theirs.state, ours.was_up, theirs.was_up) == (UP, UP, True, True)
    ours = session.hear(ours, theirs.packet(), 4)
    assert ours.send_interval_ns == theirs.send_interval_ns == 50 * MS
    assert (ours.detection_ns, theirs.detection_ns) == (5 * 50 * MS, 3 * 50 * MS)


def test_who_is_not_up_says_hello_once_a_second_at_most() -> None:
    assert make().send_interval_ns == make(INIT).send_interval_ns == 1000 * MS
    assert make(UP).send_interval_ns == 50 * MS
    assert make(UP, settings=HelloSettings(2000 * MS)).send_interval_ns == 2000 * MS
    assert make(UP, remote_min_rx_us=300_000).send_interval_ns == 300 * MS
    assert make(UP, remote_min_rx_us=0).send_interval_ns is None


def test_silence_takes_a_session_down_and_forgets_the_neighbour() -> None:
    up = session.hear(session.hear(make(), word(State.INIT), 1), word(State.UP), 2)
    gone = session.expire(up, 7)
    assert (gone.state, gone.diagnostic, gone.since_ns) == (DOWN, Diagnostic.CONTROL_DETECTION_EXPIRED, 7)
    assert (gone.remote, gone.remote_state, gone.was_up) == (0, DOWN, True)
    assert gone.describe().is_lost
    assert session.expire(gone, 8) == gone
    never = session.expire(session.hear(make(), word(State.DOWN, yours=0), 1), 2)
    assert (never.state, never.describe().is_lost) == (DOWN, False)


@pytest.mark.parametrize(("diagnostic", "is_lost"), [(7, True), (0, False), (30, False)])
def test_neighbour_ending_hellos_is_not_lost_unlike_one_disabled(diagnostic: int, is_lost: bool) -> None:
    for state in (UP, DOWN):
        after = session.hear(make(state, was_up=True), word(State.ADMIN_DOWN, diagnostic=diagnostic), 3)
        assert (after.state, after.describe().is_lost) == (DOWN, is_lost)


def test_a_port_out_of_use_says_so_and_hears_nothing() -> None:
    out = session.set_admin(make(UP, was_up=True, remote=THEIRS), False, 3)
    assert (out.packet().state, out.packet().diagnostic, out.detection_ns) == (State.ADMIN_DOWN, 7, None)
    assert session.find_fault(out, word(State.UP)) is HelloDrop.ADMIN_DOWN
    assert session.set_admin(out, False, 4) == out
    back = session.set_admin(out, True, 5)
    assert (back.state, back.since_ns, back.describe().is_lost) == (DOWN, 5, True)
    last = session.end(back, 6).packet()
    assert (last.state, last.diagnostic) == (State.ADMIN_DOWN, 0)


@pytest.mark.parametrize(
    ("packet", "fault"),
    [
        (word(State.UP, mine=OURS), HelloDrop.REFLECTED),
        (word(State.DOWN, mine=OURS, yours=0), HelloDrop.REFLECTED),
        (word(State.UP, yours=discriminator(1, 5)), HelloDrop.NOT_FOR_US),
        (word(State.UP, mine=discriminator(3, 7)), HelloDrop.STRANGER),
        (word(State.DOWN, mine=discriminator(3, 7), yours=0), None),
        (word(State.DOWN, yours=0), None),
        (word(State.UP), None),
    ],
)
def test_only_the_neighbour_counts(packet: Bfd, fault: HelloDrop | None) -> None:
    assert session.find_fault(make(UP, remote=THEIRS), packet) is fault


def test_discriminators_tell_ports_apart_and_are_never_zero() -> None:
    numbers = {discriminator(device, port) for device in range(40) for port in range(512)}
    assert len(numbers) == 40 * 512
    assert min(numbers) > 0
    assert max(numbers) < 1 << 32


class Pair:
    """Two ends whose messages the test loses, delays and repeats: each one sent may arrive at any time."""

    def __init__(self, settings: HelloSettings, other: HelloSettings) -> None:
        self.ends = [Session(OURS, settings), Session(THEIRS, other)]
        self.said: list[list[Bfd]] = [[], []]

    def say(self, end: int) -> None:
        self.said[end].append(self.ends[end].packet())

    def hear(self, end: int, packet: Bfd) -> None:
        if session.find_fault(self.ends[end], packet) is None:
            self.ends[end] = session.hear(self.ends[end], packet, 0)


@given(settings, settings, st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(0, 99)), max_size=60))
def test_whatever_happened_two_ends_that_hear_each_other_come_up(
    one: HelloSettings, other: HelloSettings, happened: list[tuple[int, int, int]]
) -> None:
    """Losses, delays, silences and disabled ports first, then a working line: UP at both ends within a few messages."""
    pair = Pair(one, other)
    for end, what, number in happened:
        if what <= 1:
            pair.say(end)
        elif what <= 3 and pair.said[1 - end]:
            pair.hear(end, pair.said[1 - end][number % len(pair.said[1 - end])])
        elif what == 4:
            pair.ends[end] = session.expire(pair.ends[end], 0)
        elif what == 5:
            pair.ends[end] = session.set_admin(pair.ends[end], bool(number % 2), 0)
    for end in (0, 1):
        pair.ends[end] = session.set_admin(pair.ends[end], True, 0)
    for _ in range(6):
        for end in (0, 1):
            pair.hear(1 - end, pair.ends[end].packet())
    assert [end.state for end in pair.ends] == [UP, UP]
    for end in (0, 1):  # each waits longer than the other one's longest pause
        sends_ns = pair.ends[end].send_interval_ns
        waits_ns = pair.ends[1 - end].detection_ns
        assert sends_ns is not None
        assert waits_ns is not None
        assert waits_ns >= sends_ns
        assert waits_ns == pair.ends[end].settings.multiplier * sends_ns


@given(st.binary(min_size=24, max_size=24), st.sampled_from([DOWN, INIT, UP, ADMIN]))
def test_no_packet_of_a_stranger_brings_a_session_up(noise: bytes, state: HelloState) -> None:
    before = make(state, remote=THEIRS)
    packet = Bfd(
        State(noise[0] & 3),
        max(noise[1], 1),
        int.from_bytes(noise[2:6], "big") | 1,
        int.from_bytes(noise[6:10], "big"),
        diagnostic=noise[10] & 31,
    )
    if session.find_fault(before, packet) is None and packet.your_discriminator != OURS:
        after = session.hear(before, packet, 1)
        assert after.state is not UP or before.state is UP
