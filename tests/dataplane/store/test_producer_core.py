"""What a producer answers, remembers over restarts, and forgets."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dataplane.store import layout
from dataplane.store.content_database import ContentDatabase
from dataplane.store.dialogues import Content, reading, recording, writing
from dataplane.store.errors import AbsentError, ForbiddenError, StaleError, StoreError
from dataplane.store.layout import Form, Preamble
from dataplane.store.names import digest
from dataplane.store.producer_core import REMEMBERED_NS, ProducerCore, ProducerSettings
from dataplane.store.requests import Pace
from dataplane.wire.store import Kind, Message, Reason
from tests.dataplane.store.talking import MS, Network, Talk

ALICE, BOB = (10, 4000), (11, 4000)
LONG = random.Random(3).randbytes(300_000)
ROOM = bytes(1024)
S = 1000 * MS


_opened: list[ContentDatabase] = []


@pytest.fixture(autouse=True)
def shelves_are_closed() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def opened(path: str = ":memory:") -> ContentDatabase:
    """Return a shelf that is closed after the test."""
    _opened.append(ContentDatabase(path))
    return _opened[-1]


def producer_core(path: str = ":memory:", settings: ProducerSettings | None = None, now_ns: int = 0) -> ProducerCore:
    return ProducerCore(opened(path), settings or ProducerSettings(), now_ns)


def put(value: bytes, *, number: int = 1, name: str = "/a") -> Message:
    (first,) = layout.in_place(value)
    return Message(Kind.PUT, digest(name), content=first, number=number)


def talked(network: Network, *talks: Talk) -> list[object]:
    network.run()
    for talk in talks:
        assert talk.is_over
        if talk.error is not None:
            raise talk.error
    return [talk.result for talk in talks]


@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("value", [b"", b"short", bytes(1000), LONG], ids=len)
def test_what_is_written_is_read(value: bytes, loss: float) -> None:
    network = Network(producer_core(), random.Random(5), loss)
    assert talked(network, Talk(network, ALICE, writing("/a", value))) == [1]
    assert talked(network, Talk(network, BOB, reading("/a"))) == [Content(value, 1)]
    assert network.producer.read("/a", network.now_ns) == value


def test_readers_beside_a_writer_see_whole_values_in_the_order_of_their_versions() -> None:
    network = Network(producer_core(), random.Random(6), 0.05)
    values = [bytes([number]) * (20_000 + number) for number in range(12)]
    seen: list[Content] = []

    def read() -> None:
        talk = Talk(network, BOB, reading("/a"))
        network.run_until_over(talk)
        assert isinstance(talk.result, Content)
        seen.append(talk.result)

    network.producer.publish("/a", values[0], 0)
    for number, value in enumerate(values[1:], start=2):
        writer = Talk(network, ALICE, writing("/a", value))
        while not writer.is_over:
            read()
        assert writer.result == number
        read()
        assert seen[-1].version == number
    assert all(content.value == values[content.version - 1] for content in seen)
    assert [content.version for content in seen] == sorted(content.version for content in seen)


def test_versions_go_on_after_a_restart_and_a_write_is_known_again(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    shelf = opened(path)
    first = ProducerCore(shelf, ProducerSettings(), 0)
    writes = [first.receive(ALICE, put(b"%d" % number, number=number), S) for number in (1, 2)]
    assert [one.version for one in writes if one is not None] == [1, 2]
    first.publish("/long", LONG, S)
    shelf.commit()
    shelf.close()
    again = producer_core(path, now_ns=2 * S)
    assert again.read("/a", 2 * S) == b"2"
    assert again.read("/long", 2 * S) == LONG
    repeated = again.receive(ALICE, put(b"1", number=1), 2 * S)
    assert repeated is not None
    assert (repeated.kind, repeated.version, repeated.content) == (Kind.PUT_ACK, 1, b"")
    assert again.read("/a", 2 * S) == b"2"
    another = again.receive(BOB, put(b"1", number=1), 2 * S)
    assert another is not None
    assert another.version == 3


def test_what_was_not_committed_is_not_there_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    shelf = opened(path)
    ProducerCore(shelf, ProducerSettings(), 0).publish("/a", b"1", 0)
    shelf.close()
    with pytest.raises(AbsentError, match="/a: there is no content"):
        producer_core(path).read("/a", 0)


def test_a_file_has_one_producer(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    shelf = opened(path)
    with pytest.raises(StoreError, match=r"store\.db: cannot open the store: process \d+ has it"):
        ContentDatabase(path)
    shelf.close()
    (tmp_path / "junk.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"junk\.db: cannot open the store: "):
        ContentDatabase(str(tmp_path / "junk.db"))


def test_writes_are_forgotten_when_nobody_repeats_them_any_more() -> None:
    shelf = opened()
    one = ProducerCore(shelf, ProducerSettings(), 0)
    one.receive(ALICE, put(b"1", number=1), S)
    one.tidy(S + REMEMBERED_NS)
    assert len(shelf.writes) == 1
    one.tidy(S + REMEMBERED_NS + 1)
    assert len(shelf.writes) == 0


def test_versions_turn_over_without_zero() -> None:
    shelf = opened()
    one = ProducerCore(shelf, ProducerSettings(), 0)
    one.publish("/a", b"1", 0)
    key = digest("/a"), 0
    shelf.put(key, replace(shelf.items[key], version=2**32 - 1))
    assert one.publish("/a", b"2", 0) == 1


def test_an_answer_says_for_how_long_it_is_fresh_and_repeats_number_and_tag() -> None:
    one = producer_core(settings=ProducerSettings(freshness_ms=77))
    one.publish("/a", b"1", 0)
    answer = one.receive(BOB, Message(Kind.INTEREST, digest("/a"), content=ROOM, number=8, tag=9), S)
    assert answer is not None
    assert (answer.freshness_ms, answer.number, answer.tag, answer.size) == (77, 8, 9, 1)
    short = one.receive(BOB, Message(Kind.INTEREST, digest("/a")), S)
    assert short is not None
    assert (short.kind, short.reason, short.size, short.version) == (Kind.NACK, Reason.TOO_SHORT, 1, 1)


def test_a_name_settles_when_copies_of_older_versions_are_no_longer_fresh() -> None:
    one = producer_core()
    interest = Message(Kind.INTEREST, digest("/a"), content=ROOM)
    one.publish("/a", b"1", 0)
    assert one.settled_ns("/a") == 0
    one.receive(BOB, interest, S)
    one.publish("/a", b"2", 3 * S // 2)
    assert one.settled_ns("/a") == 2 * S + 100 * MS
    one.receive(BOB, interest, 4 * S)
    assert one.settled_ns("/a") == 2 * S + 100 * MS
    assert one.announcement("/a") == (BOB, Message(Kind.PUT_ACK, digest("/a"), version=2))
    assert one.announcement("/b") is None


def test_who_may_not_write_is_told() -> None:
    network = Network(producer_core(settings=ProducerSettings(writers=frozenset({ALICE[0]}))), random.Random(1))
    assert talked(network, Talk(network, ALICE, writing("/a", b"1"))) == [1]
    for value in (b"2", LONG):
        with pytest.raises(ForbiddenError, match="/a: this host may not write it"):
            talked(network, Talk(network, BOB, writing("/a", value)))
    assert network.producer.read("/a", 0) == b"1"


def test_blocks_of_somebody_elses_making_do_not_stay_in_the_way() -> None:
    network = Network(producer_core(), random.Random(1))
    number = layout.hash_of(LONG)
    network.producer.receive(BOB, Message(Kind.PUT, number, 3, content=bytes(1024)), 0)
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]
    refused = network.producer.receive(BOB, Message(Kind.PUT, number, 3, version=9, content=bytes(1024)), 0)
    assert refused is not None
    assert refused.reason is Reason.FORBIDDEN
    network.producer.receive(BOB, Message(Kind.PUT, number, 3, content=bytes(1024)), 0)
    assert network.producer.read("/a", 0) == LONG


def test_a_first_segment_without_its_blocks_is_refused_at_once_however_long_the_value() -> None:
    first = layout.padded(Preamble(Form.BY_HASH, layout.MOST_BYTES, 7).encode())
    answer = producer_core().receive(BOB, Message(Kind.PUT, digest("/a"), content=first), 0)
    assert answer is not None
    assert (answer.kind, answer.reason) == (Kind.NACK, Reason.ABSENT)


def test_blocks_of_a_value_that_was_replaced_stay_for_its_readers_and_go() -> None:
    shelf = opened()
    one = ProducerCore(shelf, ProducerSettings(), 0)
    interest = Message(Kind.INTEREST, layout.hash_of(LONG), 1, content=ROOM)
    one.publish("/a", LONG, 0)
    one.publish("/b", LONG, 0)
    one.publish("/a", b"short", 0)
    one.tidy(100 * S)
    assert one.read("/b", 100 * S) == LONG
    one.publish("/b", b"short", 100 * S)
    one.tidy(129 * S)
    still = one.receive(BOB, interest, 129 * S)
    assert still is not None
    assert still.kind is Kind.DATA
    one.tidy(131 * S)
    gone = one.receive(BOB, interest, 131 * S)
    assert gone is not None
    assert gone.kind is Kind.NACK
    assert len(shelf.items) == 2
    network = Network(one, random.Random(1))
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [3]


def test_no_more_is_staged_than_there_is_room_for() -> None:
    network = Network(producer_core(settings=ProducerSettings(most_staged_bytes=400_000)), random.Random(1))
    for number in range(300):
        network.producer.receive(BOB, Message(Kind.PUT, 5, 1 + number, content=bytes(1024)), 0)
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]


def test_what_switches_recorded_is_kept_in_the_writers_version() -> None:
    network = Network(producer_core(), random.Random(1), 0.1)
    talked(network, Talk(network, ALICE, recording("/p", LONG, version=7)))
    assert network.producer.read("/p", 0) == LONG
    with pytest.raises(StaleError, match="/p: version 7 is there, which is not older") as caught:
        talked(network, Talk(network, ALICE, recording("/p", b"1", version=6)))
    assert caught.value.version == 7
    with pytest.raises(StaleError):
        talked(network, Talk(network, BOB, recording("/p", b"1", version=7)))
    talked(network, Talk(network, BOB, recording("/p", b"1", version=8)))
    assert talked(network, Talk(network, BOB, reading("/p"))) == [Content(b"1", 8)]


def test_a_window_and_a_timeout_follow_what_happens() -> None:
    pace = Pace(random.Random(1))
    assert pace.timeout_ns == 100 * MS
    for _ in range(50):
        pace.answered(20 * MS)
    assert 20 * MS <= pace.timeout_ns < 21 * MS
    assert pace.window > 16
    before = pace.window
    pace.lost(S)
    pace.lost(S)
    assert pace.window == before / 2
