"""A producer's answers, its memory across restarts, and forgetting."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from dataplane.store import layout
from dataplane.store.content_database import SEGMENT_COST, ContentDatabase
from dataplane.store.dialogues import Content, reading, recording, writing
from dataplane.store.errors import AbsentError, ForbiddenError, FullError, StaleError, StoreError
from dataplane.store.layout import Form, Preamble
from dataplane.store.names import Segment, digest, key_of
from dataplane.store.producer_core import REMEMBERED_NS, ProducerCore, ProducerSettings, Quotas
from dataplane.store.proofs import SLOT_NS, Source
from dataplane.store.requests import Pace
from dataplane.store.staging import Staging
from dataplane.store.talk import Talk
from dataplane.wire.store import Kind, Message, Reason
from tests.dataplane.store.talking import MS, Network

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
    """Open a shelf until the end of the test."""
    _opened.append(ContentDatabase(path))
    return _opened[-1]


def producer_core(path: str = ":memory:", settings: ProducerSettings | None = None, now_ns: int = 0) -> ProducerCore:
    return ProducerCore(opened(path), settings or ProducerSettings(), now_ns)


def put(value: bytes, *, number: int = 1, name: str = "/a") -> Message:
    (first,) = layout.in_place(value)
    return Message(Kind.PUT, digest(name), content=first, number=number)


def tell(core: ProducerCore, source: Source, message: Message, now_ns: int = 0, *, writable: bool = True) -> Message:
    """Send a write as a client does, with the proof from the challenge; return the answer."""
    told = core.receive(source, message, now_ns)
    assert told is not None
    assert (told.kind, told.reason, told.version, told.content) == (Kind.NACK, Reason.UNPROVEN, 0, b"")
    answer = core.receive(source, replace(message, tag=told.tag), now_ns, writable=writable)
    assert answer is not None
    assert answer.tag == 0
    return answer


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


def test_concurrent_readers_see_whole_values_in_version_order() -> None:
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


def test_versions_continue_and_writes_are_known_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    shelf = opened(path)
    first = ProducerCore(shelf, ProducerSettings(), 0)
    writes = [tell(first, ALICE, put(b"%d" % number, number=number), S) for number in (1, 2)]
    assert [write.version for write in writes] == [1, 2]
    first.publish("/long", LONG, S)
    shelf.commit()
    shelf.close()
    again = producer_core(path, now_ns=2 * S)
    assert again.read("/a", 2 * S) == b"2"
    assert again.read("/long", 2 * S) == LONG
    repeated = tell(again, ALICE, put(b"1", number=1), 2 * S)
    assert (repeated.kind, repeated.version, repeated.content) == (Kind.PUT_ACK, 1, b"")
    assert again.read("/a", 2 * S) == b"2"
    assert tell(again, BOB, put(b"1", number=1), 2 * S).version == 3


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
    core = ProducerCore(shelf, ProducerSettings(), 0)
    tell(core, ALICE, put(b"1", number=1), S)
    core.tidy(S + REMEMBERED_NS)
    assert len(shelf.writes) == 1
    core.tidy(S + REMEMBERED_NS + 1)
    assert len(shelf.writes) == 0


def test_versions_turn_over_without_zero() -> None:
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(), 0)
    core.publish("/a", b"1", 0)
    key = key_of(digest("/a")), 0
    shelf.put(key, replace(shelf.items[key], version=2**32 - 1))
    assert core.publish("/a", b"2", 0) == 1


def test_answer_gives_freshness_and_echoes_number_and_tag() -> None:
    core = producer_core(settings=ProducerSettings(freshness_ms=77))
    core.publish("/a", b"1", 0)
    answer = core.receive(BOB, Message(Kind.INTEREST, digest("/a"), content=ROOM, number=8, tag=9), S)
    assert answer is not None
    assert (answer.freshness_ms, answer.number, answer.tag, answer.size) == (77, 8, 9, 1)
    short = core.receive(BOB, Message(Kind.INTEREST, digest("/a")), S)
    assert short is not None
    assert (short.kind, short.reason, short.size, short.version) == (Kind.NACK, Reason.TOO_SHORT, 1, 1)


def test_name_settles_once_older_copies_are_no_longer_fresh() -> None:
    core = producer_core()
    interest = Message(Kind.INTEREST, digest("/a"), content=ROOM)
    core.publish("/a", b"1", 0)
    assert core.settled_ns("/a") == 0
    core.receive(BOB, interest, S)
    core.publish("/a", b"2", 3 * S // 2)
    assert core.settled_ns("/a") == 2 * S + 100 * MS
    core.receive(BOB, interest, 4 * S)
    assert core.settled_ns("/a") == 2 * S + 100 * MS
    assert core.announcement("/a") == (BOB, Message(Kind.PUT_ACK, digest("/a"), version=2))
    assert core.announcement("/b") is None


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
    tell(network.producer, BOB, Message(Kind.PUT, number, 3, content=bytes(1024)))
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]
    refused = tell(network.producer, BOB, Message(Kind.PUT, number, 3, version=9, content=bytes(1024)))
    assert refused.reason is Reason.FORBIDDEN
    tell(network.producer, BOB, Message(Kind.PUT, number, 3, content=bytes(1024)))
    assert network.producer.read("/a", 0) == LONG


def test_first_segment_without_its_blocks_is_refused_at_once() -> None:
    first = layout.padded(Preamble(Form.BY_HASH, layout.MOST_BYTES, 7).encode())
    answer = tell(producer_core(), BOB, Message(Kind.PUT, digest("/a"), content=first))
    assert (answer.kind, answer.reason) == (Kind.NACK, Reason.ABSENT)


def test_blocks_of_a_replaced_value_stay_for_readers_then_go() -> None:
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(), 0)
    interest = Message(Kind.INTEREST, layout.hash_of(LONG), 1, content=ROOM)
    core.publish("/a", LONG, 0)
    core.publish("/b", LONG, 0)
    core.publish("/a", b"short", 0)
    core.tidy(100 * S)
    assert core.read("/b", 100 * S) == LONG
    core.publish("/b", b"short", 100 * S)
    core.tidy(129 * S)
    still = core.receive(BOB, interest, 129 * S)
    assert still is not None
    assert still.kind is Kind.DATA
    core.tidy(131 * S)
    gone = core.receive(BOB, interest, 131 * S)
    assert gone is not None
    assert gone.kind is Kind.NACK
    assert len(shelf.items) == 2
    network = Network(core, random.Random(1))
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [3]


def test_no_more_is_staged_than_there_is_room_for() -> None:
    quotas = Quotas(open_bytes=400_000)
    network = Network(producer_core(settings=ProducerSettings(quotas=quotas)), random.Random(1))
    for number in range(300):
        tell(network.producer, BOB, Message(Kind.PUT, 5, 1 + number, content=bytes(1024)))
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]
    with pytest.raises(FullError, match=r"^/b: the producer has no room for it: its disk or a quota is full$"):
        talked(network, Talk(network, ALICE, writing("/b", LONG + LONG)))


def test_who_floods_with_open_writes_loses_his_own() -> None:
    staging = Staging(most_values=8, most_bytes=1 << 20)
    assert staging.put(key_of(1000), 1, b"alice", ALICE[0], 0)
    for number in range(1000):
        assert staging.put(key_of(number), 1, b"", BOB[0], number)
    assert len(staging) == 8
    assert staging.get(key_of(1000)) is not None
    assert staging.get(key_of(999)) is not None
    assert staging.nbytes == 8 * SEGMENT_COST + len(b"alice")
    staging.tidy(40 * S)
    assert (len(staging), staging.nbytes) == (0, 0)


def test_write_from_an_unreachable_address_is_never_kept() -> None:
    core = producer_core()
    core.publish("/a", b"before", 0)
    told = core.receive(ALICE, put(b"genuine"), 0)
    assert told is not None
    first = layout.padded(Preamble(Form.BY_HASH, 1024, 7).encode())
    kinds = [put(b"forged"), Message(Kind.PUT, 7, 1, content=ROOM), Message(Kind.PUT, 8, 1, 9, content=ROOM)]
    kinds.append(Message(Kind.PUT, digest("/b"), content=first))
    # Of another host, port or time, and 5,000 guesses: only the issued one is accepted.
    for source, now_ns in ((BOB, 0), ((ALICE[0], 1), 0), (ALICE, 2 * SLOT_NS), (ALICE, -1)):
        for message in kinds:
            answer = core.receive(source, replace(message, tag=told.tag), now_ns)
            assert answer is not None
            assert answer.reason is Reason.UNPROVEN
    chance = random.Random(7)
    for guess in chance.sample(range(2**32), 5_000):
        answer = core.receive(ALICE, replace(chance.choice(kinds), tag=guess), 0)
        assert answer is not None
        assert (answer.reason, len(answer.encode())) == (Reason.UNPROVEN, 40)
    assert core.read("/a", 0) == b"before"
    assert core.counters["unproven"] == 5_000 + 16 + 1
    assert core.counters["staged"] == core.counters["written"] == core.counters["recorded"] == 0
    answer = core.receive(ALICE, replace(put(b"genuine"), tag=told.tag), SLOT_NS)
    assert answer is not None
    assert answer.kind is Kind.PUT_ACK


@pytest.mark.parametrize(
    ("quotas", "fitting"),
    [(Quotas(names=3), 3), (Quotas(bytes=3 * (256 + SEGMENT_COST)), 3), (Quotas(remembered_writes=3), 3)],
    ids=["names", "bytes", "remembered writes"],
)
def test_a_write_beyond_a_quota_is_refused_and_those_before_stay(quotas: Quotas, fitting: int) -> None:
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(quotas=quotas), 0)
    answers = [tell(core, ALICE, put(b"1", number=number, name=f"/{number}")) for number in range(50)]
    assert [answer.kind for answer in answers[:fitting]] == [Kind.PUT_ACK] * fitting
    assert {answer.reason for answer in answers[fitting:]} == {Reason.FULL}
    assert (len(shelf.items), len(shelf.writes)) == (fitting, fitting)
    assert core.read("/0", 0) == b"1"
    # Repetitions are recognised, whatever is full.
    assert tell(core, ALICE, put(b"1", number=0, name="/0")).kind is Kind.PUT_ACK


def test_names_that_are_one_to_pythons_hash_lie_apart_in_memory() -> None:
    """Python's hash of an integer is its remainder by a well-known number: collisions would make searches long."""
    names = [7 + number * sys.hash_info.modulus for number in range(200)]
    assert len({hash(name) for name in names}) == 1
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(), 0)
    for number, name in enumerate(names):
        tell(core, ALICE, Message(Kind.PUT, name, number=number, content=layout.in_place(b"1")[0]))
        tell(core, ALICE, Message(Kind.PUT, name, 1, number=number, content=ROOM))
    tables = shelf.items, core._outstanding, core._staging._staged, [Segment(name) for name in names]
    for table in tables:
        assert len({hash(key) for key in table}) == len(table) == 200


def test_recorded_segments_count_towards_the_quotas() -> None:
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(quotas=Quotas(names=2, bytes=3 * (1024 + SEGMENT_COST))), 0)
    parts = [Message(Kind.PUT, 7, segment, version=1, content=ROOM) for segment in range(1, 6)]
    assert [tell(core, BOB, part).kind for part in parts] == [Kind.PUT_ACK] * 3 + [Kind.NACK] * 2
    assert tell(core, BOB, replace(parts[0], version=2)).kind is Kind.PUT_ACK
    assert tell(core, BOB, replace(parts[0], name=8)).reason is Reason.FULL
    with pytest.raises(FullError, match=r"^/x: 1 bytes are more than the producer's quotas leave room for$"):
        core.publish("/x", b"1", 0)
    assert shelf.nbytes == 3 * (1024 + SEGMENT_COST)


def test_a_long_value_takes_the_place_of_the_one_before() -> None:
    shelf = opened()
    room = SEGMENT_COST + 256 + layout.padded_bytes(len(LONG)) + 293 * SEGMENT_COST
    network = Network(ProducerCore(shelf, ProducerSettings(quotas=Quotas(names=2, bytes=room)), 0), random.Random(1))
    for version, value in enumerate((LONG, LONG[::-1], LONG), start=1):
        assert talked(network, Talk(network, ALICE, writing("/a", value))) == [version]
        assert shelf.nbytes == room
    assert network.producer.read("/a", network.now_ns) == LONG


def test_quotas_are_positive() -> None:
    with pytest.raises(StoreError, match=r"^quota names: 0 is less than 1$"):
        Quotas(names=0)


def test_a_value_that_was_checked_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[int] = []
    whole = layout.hash_of

    def noted(value: bytes) -> int:
        hashed.append(len(value))
        return whole(value)

    monkeypatch.setattr(layout, "hash_of", noted)
    network = Network(producer_core(), random.Random(1))
    first = layout.padded(layout.by_hash(LONG)[0].encode())
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]
    hashed.clear()
    again = Message(Kind.PUT, digest("/a"), content=first)
    for number in range(2, 30):
        assert tell(network.producer, ALICE, replace(again, number=number)).version == number
    # Nor when it was replaced and returns while its blocks still have readers.
    assert tell(network.producer, ALICE, put(b"", number=30)).version == 30
    assert tell(network.producer, ALICE, replace(again, number=31)).version == 31
    assert len(LONG) not in hashed
    longer = layout.padded(Preamble(Form.BY_HASH, len(LONG) + 1, layout.by_hash(LONG)[0].hash).encode())
    hashed.clear()
    assert tell(network.producer, ALICE, replace(again, content=longer, number=32)).reason is Reason.ABSENT
    assert hashed == []
    assert network.producer.read("/a", network.now_ns) == LONG


def test_recorded_junk_blocks_form_no_value() -> None:
    network = Network(producer_core(), random.Random(1))
    preamble, blocks = layout.by_hash(LONG)
    first = layout.padded(preamble.encode())
    forged = Message(Kind.PUT, digest("/x"), 0, version=1, content=first)
    assert tell(network.producer, BOB, forged).reason is Reason.FORBIDDEN
    for index in range(1, len(blocks) + 1):
        junk = Message(Kind.PUT, preamble.hash, index, version=9, content=ROOM)
        assert tell(network.producer, BOB, junk).kind is Kind.PUT_ACK
    assert talked(network, Talk(network, ALICE, writing("/a", LONG))) == [1]
    assert network.producer.read("/a", network.now_ns) == LONG


def test_without_a_disk_nothing_is_written_and_all_is_as_before() -> None:
    shelf = opened()
    core = ProducerCore(shelf, ProducerSettings(), 0)
    core.publish("/a", LONG, 0)
    assert tell(core, ALICE, put(b"1", number=1, name="/b")).version == 1
    assert shelf.commit()
    before = dict(shelf.items), dict(shelf.writes), shelf.names, shelf.nbytes, deepcopy(shelf.blocks)
    core.publish("/a", b"2", 0)
    core.publish("/c", LONG[::-1], 0)
    tell(core, ALICE, put(b"2", number=2, name="/b"))
    core.tidy(REMEMBERED_NS + S)
    shelf.rollback()
    assert not shelf.commit()
    assert (shelf.items, shelf.writes, shelf.names, shelf.nbytes, shelf.blocks) == before
    assert tell(core, ALICE, put(b"1", number=1, name="/b"), writable=False).version == 1  # known again
    assert tell(core, ALICE, put(b"3", number=3, name="/b"), writable=False).reason is Reason.FULL
    assert tell(core, ALICE, Message(Kind.PUT, 7, 0, version=1, content=ROOM), writable=False).reason is Reason.FULL
    # Also for a value whose blocks were lost with the transaction: requests for them would never end.
    first = Message(Kind.PUT, digest("/c"), content=layout.padded(layout.by_hash(LONG[::-1])[0].encode()))
    assert tell(core, ALICE, first, writable=False).reason is Reason.FULL
    assert core.read("/a", 0) == LONG
    assert tell(core, ALICE, put(b"3", number=3, name="/b")).version == 2


def test_what_switches_recorded_is_kept_in_the_writers_version() -> None:
    network = Network(producer_core(), random.Random(1), 0.1)
    talked(network, Talk(network, ALICE, recording("/p", LONG, version=7)))
    assert network.producer.read("/p", 0) == LONG
    with pytest.raises(StaleError, match="/p: version 7 is stored, which is not older") as caught:
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
