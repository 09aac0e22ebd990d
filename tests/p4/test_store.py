"""Named content in the switch: equal to the reference packet for packet, over random schedules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from dataplane.store.names import Prefix, Segment, prefix_of, route_of
from dataplane.store.reference.holder import FAR, LONGEST_FRESHNESS_MS, Cached, Cell, Recorded, Sender, receive
from dataplane.wire.store import NAMES_ADDRESS, Kind, Message
from tests.p4.entries import DefaultAction, Entry
from tests.p4.storing import HOSTS, PORTS, PRODUCER, Arrival, Named, expected, fabric_items, frame, seen, sender
from tests.p4.targets import Target
from tests.reference.sketch import Sketch

NAMES = IPv4Address(NAMES_ADDRESS)
STEPS = {"builtin": 200, "compiled": 800, "bmv2": 110}
WRITERS = frozenset({int(HOSTS[0]), int(HOSTS[1])})
LONG_MS = 10**6
FOR_EVER_MS = 2**32 - 1
WORDS = {"answered", "missed", "filled", "raised", "old", "kept", "repeated", "refused", "passed"}
JUMPS = (FAR, FAR + 1, -FAR, -FAR - 1, 2**30, -(2**30), 2**31 - 1, 2**31)
"""Offsets of a forged version from the true one."""
Step = tuple[Named, IPv4Address, int, IPv4Address, Message]
"""The name, the sender, its port, the receiver, and the message."""


@pytest.fixture(params=["builtin", "compiled", pytest.param("bmv2", marks=[pytest.mark.bmv2, pytest.mark.root])])
def switch(request: pytest.FixtureRequest) -> Target:
    """Return a switch that knows its ports, and no names."""
    target: Target = request.getfixturevalue(f"{request.param}_aggregating")
    target.reset()
    target.write(fabric_items(WRITERS))
    return target


def names(generation: int) -> list[Named]:
    """Return two copied names, and two kept only in the switch; generations are never reused."""
    producer = sender(PRODUCER)
    return [
        Named(2**127 + 1, 0, 0, Cached(generation, producer)),
        Named(2**127 + 1, 1, 1, Cached(generation + 1, producer)),
        Named(5, 0, 4094, Recorded(generation + 2, WRITERS)),
        Named(6, 2**32 - 1, 4095, Recorded(generation + 3, WRITERS, forward=True)),
    ]


class Schedule:
    """Random requests, answers and writes, some old, far ahead, foreign, too short, or not to be copied."""

    def __init__(self, seed: int, held: list[Named]) -> None:
        self._chance = random.Random(seed)
        self._names = held
        self._version = 2**32 - 2  # turns over
        self._last: Step | None = None
        self._tags = [0, 0, *(segment.held.generation for segment in held)]

    def step(self) -> Step:
        """Return the next packet; sometimes repeat the last write."""
        step = self._step() if self._last is None or self._chance.random() < 0.85 else self._last
        if step[4].kind is Kind.PUT:
            self._last = step
        return step

    def _step(self) -> Step:
        chance = self._chance
        named = chance.choice(self._names)
        self._version += chance.random() < 0.1
        message = Message(
            kind=chance.choice((Kind.INTEREST, Kind.INTEREST, Kind.PUT)),
            name=named.name,
            segment=named.segment,
            version=(self._version + chance.choice((0, 0, 0, -1, -2, 1) if chance.random() < 0.96 else JUMPS)) % 2**32,
            freshness_ms=chance.choice((LONG_MS, LONG_MS, LONG_MS, FOR_EVER_MS, 1, 0)),
            content=chance.randbytes(256 * chance.choice((4, 4, 4, 3, 2, 1, 0))),
            size=chance.randrange(5),
            tag=chance.choice((0, 0, 0, named.held.generation, named.held.generation, *self._tags)),
            number=chance.getrandbits(32),
        )
        if chance.random() < 0.4:
            kind = chance.choice((Kind.DATA, Kind.DATA, Kind.PUT_ACK, Kind.NACK))
            port = PORTS[PRODUCER] if chance.random() < 0.9 else chance.choice(list(PORTS.values()))
            return named, PRODUCER, port, chance.choice(HOSTS), replace(message, kind=kind)
        if chance.random() < 0.05:
            message = replace(message, kind=Kind.DATA)  # claims a host other than the producer
        host = chance.choice(HOSTS)
        return named, host, PORTS[host], PRODUCER, message


def _without_age(arrivals: list[Arrival]) -> list[Arrival]:
    """Return arrivals without their remaining freshness, which depends on a real switch's clock."""
    return [(*rest, replace(message, freshness_ms=0)) for *rest, message in arrivals]  # type: ignore[misc]


@pytest.mark.parametrize("seed", [4, 11])
def test_every_packet_is_treated_as_the_reference_says(switch: Target, seed: int) -> None:
    held = names(100 * seed)
    switch.write(segment.entry() for segment in held)
    cells = {segment.cell: Cell() for segment in held}
    counts: Counter[str] = Counter()
    schedule = Schedule(seed, held)
    for step in range(STEPS[switch.name]):
        named, src, port, dst, message = schedule.step()
        whose = Sender(int(src), port)
        cells[named.cell], sent, what = receive(named.held, cells[named.cell], whose, message, step * 1000)
        counts[what] += 1
        got = seen(switch.send(port, frame(src, message, to=dst)[1], expect=1))
        right = expected(sent, src, dst)
        if switch.name == "bmv2":
            got, right = _without_age(got), _without_age(right)
        assert got == right, (message, what)
    assert set(counts) == WORDS


def _copied(switch: Target, generation: int, freshness_ms: int = LONG_MS) -> Message:
    """Let the switch copy a name's content; return the INTEREST for it."""
    named = Named(9, 0, 7, Cached(generation, sender(PRODUCER)))
    switch.write([named.entry()])
    interest = Message(Kind.INTEREST, 9, content=bytes(256))
    ((*_, asked),) = seen(switch.send(*frame(HOSTS[0], interest), expect=1))
    assert asked.tag == generation
    data = Message(Kind.DATA, 9, version=1, freshness_ms=freshness_ms, content=b"\1" * 256, tag=asked.tag)
    switch.send(*frame(PRODUCER, data, to=HOSTS[0]), expect=1)
    return interest


def _kind_at(switch: Target, src: IPv4Address, message: Message) -> tuple[IPv4Address, Kind]:
    ((_, _, dst, _, _, answer),) = seen(switch.send(*frame(src, message), expect=1))
    return IPv4Address(dst), answer.kind


def test_a_copy_is_given_to_others_until_a_write_is_acknowledged(switch: Target) -> None:
    interest = _copied(switch, 1001)
    assert _kind_at(switch, HOSTS[1], interest) == (HOSTS[1], Kind.DATA)
    ack = Message(Kind.PUT_ACK, 9, version=2, freshness_ms=LONG_MS, number=1)
    switch.send(*frame(PRODUCER, ack, to=HOSTS[0]), expect=1)
    assert _kind_at(switch, HOSTS[1], interest) == (PRODUCER, Kind.INTEREST)
    switch.send(*frame(PRODUCER, replace(ack, content=b"\2" * 256), to=HOSTS[0]), expect=1)
    ((*_, answer),) = seen(switch.send(*frame(HOSTS[1], interest), expect=1))
    assert (answer.kind, answer.version, answer.content) == (Kind.DATA, 2, b"\2" * 256)


def test_what_is_no_longer_fresh_is_asked_for_again(switch: Target) -> None:
    interest = _copied(switch, 1002, freshness_ms=1)
    assert _kind_at(switch, HOSTS[1], interest) == (PRODUCER, Kind.INTEREST)


def _answers(switch: Target, interest: Message) -> tuple[Kind, int, int, bytes]:
    """Return kind, version, freshness and content of the answer to a host, or of the packet to the producer."""
    ((*_, answer),) = seen(switch.send(*frame(HOSTS[1], interest), expect=1))
    return answer.kind, answer.version, answer.freshness_ms, answer.content


FORGED = Message(Kind.DATA, 9, version=2**31, freshness_ms=FOR_EVER_MS, content=b"\xee" * 256)
"""Half a circle ahead of the copy's version, to be given out for 49 days."""


@pytest.mark.parametrize(("generation", "tag"), [(1005, 0), (1008, 1008)], ids=["no tag", "the tag"])
def test_data_in_the_producers_name_from_other_ports_is_ignored(switch: Target, generation: int, tag: int) -> None:
    interest = _copied(switch, generation)
    for port in (PORTS[host] for host in HOSTS):
        _, data = frame(PRODUCER, replace(FORGED, tag=tag), to=HOSTS[0])
        assert len(switch.send(port, data, expect=1)) == 1  # it goes where it is addressed
    kind, version, _, content = _answers(switch, interest)
    assert (kind, version, content) == (Kind.DATA, 1, b"\1" * 256)


def test_version_far_ahead_is_served_only_if_asked_for(switch: Target) -> None:
    """Not even from the producer's own port: the copy ends, and the next answer is accepted."""
    interest = _copied(switch, 1006)
    switch.send(*frame(PRODUCER, FORGED, to=HOSTS[0]), expect=1)
    ((*_, asked),) = seen(switch.send(*frame(HOSTS[1], interest), expect=1))
    assert (asked.kind, asked.tag) == (Kind.INTEREST, 1006)
    late = Message(Kind.DATA, 9, version=2, freshness_ms=LONG_MS, content=b"\2" * 256)
    switch.send(*frame(PRODUCER, late, to=HOSTS[0]), expect=1)
    assert _kind_at(switch, HOSTS[1], interest) == (PRODUCER, Kind.INTEREST)
    switch.send(*frame(PRODUCER, replace(late, tag=asked.tag), to=HOSTS[0]), expect=1)
    kind, version, _, content = _answers(switch, interest)
    assert (kind, version, content) == (Kind.DATA, 2, b"\2" * 256)


@pytest.mark.parametrize("ahead", [FAR, FAR + 1])
def test_a_producer_that_is_far_ahead_is_asked_once_more(switch: Target, ahead: int) -> None:
    interest = _copied(switch, 1100 + ahead)
    data = Message(Kind.DATA, 9, version=1 + ahead, freshness_ms=LONG_MS, content=b"\3" * 256)
    switch.send(*frame(PRODUCER, data, to=HOSTS[0]), expect=1)
    ((*_, asked),) = seen(switch.send(*frame(HOSTS[1], interest), expect=1))
    assert (asked.kind is Kind.INTEREST) == (ahead > FAR)
    switch.send(*frame(PRODUCER, replace(data, tag=1100 + ahead), to=HOSTS[0]), expect=1)
    assert _answers(switch, interest)[:2] == (Kind.DATA, 1 + ahead)


def test_no_copy_is_given_out_for_longer_than_an_hour(switch: Target) -> None:
    interest = _copied(switch, 1007, freshness_ms=FOR_EVER_MS)
    kind, _, freshness_ms, _ = _answers(switch, interest)
    assert (kind, LONGEST_FRESHNESS_MS) == (Kind.DATA, 3_600_000)
    assert 0 < freshness_ms <= LONGEST_FRESHNESS_MS


def test_returning_name_is_not_answered_with_old_data(switch: Target) -> None:
    _copied(switch, 1003)
    switch.reset()
    switch.write([*fabric_items(WRITERS), Named(9, 0, 7, Cached(1004, sender(PRODUCER))).entry()])
    assert _kind_at(switch, HOSTS[1], Message(Kind.INTEREST, 9, content=bytes(256))) == (PRODUCER, Kind.INTEREST)


@pytest.mark.parametrize(
    ("at", "bytes_there"),
    [(42, b"\x21"), (43, b"\x20"), (43, b"\x50"), (40, b"\0\1"), (38, b"\1\x17")],
    ids=["another version", "more quarters than there are", "more than four", "a checksum", "another length"],
)
def test_what_is_not_quite_a_question_is_an_ordinary_packet(switch: Target, at: int, bytes_there: bytes) -> None:
    port, data = frame(HOSTS[1], _copied(switch, 2000 + 256 * at + bytes_there[0]))
    ((out, _),) = switch.send(port, data[:at] + bytes_there + data[at + len(bytes_there) :], expect=1)
    assert out == 4


def test_controller_is_told_of_popular_names(switch: Target) -> None:
    chance, sketch = random.Random(1), Sketch()
    same_row = [(row << 96) + (7 << 50) for row in range(3)]  # these share cells of two rows
    wanted = [(name, segment) for name in (*same_row, 2**128 - 1, 2**127 + 1) for segment in (0, 2**32 - 1)]
    switch.learned(expect=0)
    for interval in (1, 2):
        switch.write([DefaultAction("store_hot_names", "find_hot", (interval, 3))])
        for name, segment in chance.choices(wanted, range(1, 11), k=20):
            hot = sketch.ask(Segment(name, segment), interval=interval, threshold=3)
            interest = Message(Kind.INTEREST, name, segment, content=bytes(256))
            assert _kind_at(switch, HOSTS[0], interest) == (PRODUCER, Kind.INTEREST)
            told = [] if hot is None else [(name, segment, hot.requests, hot.interval, int(PRODUCER))]
            assert switch.learned(expect=len(told)) == told


def test_names_that_the_switch_holds_are_not_told(switch: Target) -> None:
    switch.write([DefaultAction("store_hot_names", "find_hot", (9, 1))])
    _copied(switch, 1010)
    assert switch.learned(expect=0) == []


def test_requests_by_name_go_to_the_longest_announced_prefix(switch: Target) -> None:
    route, others = route_of("/model/round-7/weights"), route_of("/model/round-8")
    first, elsewhere, anything = {"first": (route.first, 0xFFFFFFFF)}, {"first": (1, 0xFFFFFFFF)}, {"first": (0, 0)}
    both = {**first, "first_two": (route.first_two, 0xFFFFFFFF)}
    producers = ((elsewhere, HOSTS[0], 2), (first, HOSTS[1], 2), (both, PRODUCER, 3), (anything, HOSTS[2], 1))
    switch.write([Entry("store_routes", key, "to_producer", (int(to),), priority) for key, to, priority in producers])
    for prefix, to in ((route, PRODUCER), (others, HOSTS[1]), (Prefix(7, 8), HOSTS[2])):
        question = Message(
            Kind.INTEREST, 2**90, version=prefix.first, freshness_ms=prefix.first_two, content=bytes(256)
        )
        port, data = frame(HOSTS[0], question, to=NAMES)
        ((out, _, address, *_, sent),) = seen(switch.send(port, data, expect=1))
        assert (out, address, sent) == (PORTS[to], str(to), question)


def test_an_announcement_is_told_and_acknowledged(switch: Target) -> None:
    host, own = HOSTS[0], (int(HOSTS[0]), 2**32 - 1, 0, 2**128 - 1)
    switch.write([Entry("port_roles", {"ingress_port": PORTS[host]}, "set_host_port", own)])
    announcement = Message(Kind.ANNOUNCE, prefix_of("/model/round-7").number, number=5)
    switch.learned(expect=0)
    ((out, source, to, *_, sent),) = seen(switch.send(*frame(host, announcement, to=NAMES), expect=1))
    assert (out, source, to) == (PORTS[host], str(NAMES), str(host))
    assert sent == replace(announcement, kind=Kind.PUT_ACK)
    ((name, segment, requests, _, producer),) = switch.learned(expect=1)
    assert (name, segment, requests, producer) == (announcement.name, 0, 0, int(host))
    for ignored in (host, HOSTS[1]):  # too soon, and not from outside
        assert switch.send(*frame(ignored, announcement, to=NAMES), expect=0) == []
    assert switch.learned(expect=0) == []


def test_copies_from_any_switch_are_of_the_producer_still(switch: Target) -> None:
    host, own = HOSTS[0], (int(HOSTS[0]), 0, 0, 0)
    switch.write([Entry("port_roles", {"ingress_port": PORTS[host]}, "set_host_port", own)])
    name = 2**91
    switch.write([Entry("store_names", {"name": name, "segment": 1}, "cached", (900, 901, int(PRODUCER), 0x1FF))])
    data = Message(Kind.DATA, name, 1, 5, 10_000, b"\1" * 256, size=1, tag=901)
    interest = Message(Kind.INTEREST, name, 1, content=bytes(256))
    for port, answers in ((PORTS[host], False), (PORTS[HOSTS[1]], True)):
        _, packet = frame(PRODUCER, data, to=HOSTS[1])
        switch.send(port, packet, expect=1)
        ((*_, sent),) = seen(switch.send(*frame(HOSTS[2], interest), expect=1))
        assert (sent.kind is Kind.DATA) is answers
