"""Consumers in Python: packets in place or copied, sleeping and waking, and abandoned packets."""

from __future__ import annotations

import gc
import os
import select
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from dataplane.errors import PortError
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.structures import Stamp, StampKind
from tests.dataplane.nic.bursts import Driver

PATIENCE_S = 10.0


@pytest.fixture
def manager() -> Iterator[PacketManager]:
    made = PacketManager(2, name="test", longest_frame=1514)
    yield made
    made.close()


@pytest.fixture
def consumer(manager: PacketManager) -> Consumer:
    return manager.add_consumer("c", buffers={64: 16})


@pytest.fixture
def drivers(manager: PacketManager) -> list[Driver]:
    return [Driver(manager, number) for number in range(2)]


def test_a_packet_tells_what_is_known_of_it(consumer: Consumer, drivers: list[Driver]) -> None:
    frame = bytes(range(100))
    with drivers[0].burst():
        drivers[0].hand(frame, mark=7, rule=3, stamp=Stamp(time_ns=123, kind=StampKind.SOFTWARE, queue=5))
        drivers[0].hand(frame[:10], stamp=Stamp(time_ns=9, kind=StampKind.HARDWARE))
        drivers[0].hand(frame[:9], stamp=Stamp(time_ns=9, kind=StampKind.NONE))
    first, second, third = consumer.receive(10)
    assert (first.mark, first.rule, first.queue, first.length, len(first)) == (7, 3, 5, 100, 100)
    assert (first.time_ns, first.hardware_time_ns) == (123, None)
    assert (second.time_ns, second.hardware_time_ns) == (None, 9)
    assert (third.time_ns, third.hardware_time_ns) == (None, None)
    assert [bytes(part) for part in first.segments] == [frame[:64], frame[64:]]
    assert bytes(first) == frame
    assert (bytes(first.data), bytes(second.data)) == (frame[:64], frame[:10])


def test_packet_is_released_once_by_with_release_or_collection(consumer: Consumer, drivers: list[Driver]) -> None:
    drivers[0].give(*[b"abc"] * 4)
    one, two, three, four = consumer.receive(4)
    with one:
        assert bytes(one) == b"abc"
    with pytest.raises(KeyError), two:
        raise KeyError
    assert one.is_released
    assert two.is_released
    with three:
        assert three.release()
    assert not three.release()
    assert consumer.read().total("lent") == 1
    del four
    gc.collect()
    reading = consumer.read()
    assert (reading.total("lent"), reading.total("given_back"), reading.total("refused_releases")) == (0, 4, 1)
    with pytest.raises(PortError, match="given back"):
        one.data  # noqa: B018


def test_packets_and_consumers_collected_together_are_harmless() -> None:
    for _ in range(5):
        manager = PacketManager(1, name="test", longest_frame=1514)
        consumer = manager.add_consumer("c", buffers={64: 16})
        Driver(manager).give(*[b"x" * 100] * 8)
        held: list[object] = list(consumer.receive(8))
        held += [held, manager, consumer]
        manager.close()
        del manager, consumer, held
        gc.collect()


def test_views_stay_readable_after_everything_is_gone() -> None:
    manager = PacketManager(1, name="test", longest_frame=1514)
    consumer = manager.add_consumer("c", buffers={64: 16})
    Driver(manager).give(b"hello")
    (packet,) = consumer.receive(1)
    data = packet.data[1:]
    packet.release()
    manager.close()
    del packet, consumer, manager
    gc.collect()
    assert bytes(data) == b"ello"


def test_all_queues_are_received_from_in_turn(consumer: Consumer, drivers: list[Driver]) -> None:
    for driver in drivers:
        driver.give(*(bytes([driver.number, index]) for index in range(6)))
    assert consumer.receive(0) == []
    taken = [bytes(packet) for size in (2, 2, 20) for packet in consumer.receive(size)]
    for number in range(2):
        assert [packet for packet in taken if packet[0] == number] == [bytes([number, index]) for index in range(6)]
    assert consumer.receive(5) == []


def test_more_packets_than_a_burst_come_in_one_call(manager: PacketManager, drivers: list[Driver]) -> None:
    consumer = manager.add_consumer("many", buffers={64: 1000})
    drivers[0].give(*[b"x"] * 1000, group=manager.group_number("many"))
    assert len(consumer.receive(600)) == 600
    assert len(consumer.receive(600)) == 400


def test_bulk_copies_fill_rows_and_cut_what_is_too_long(consumer: Consumer, drivers: list[Driver]) -> None:
    rows, lengths, times = np.zeros((4, 80), np.uint8), np.zeros(4, np.uint32), np.zeros(4, np.uint64)
    with drivers[0].burst():
        for number, length in enumerate((100, 70, 0)):
            drivers[0].hand(bytes([65 + number]) * length, stamp=Stamp(time_ns=number, kind=StampKind.SOFTWARE))
    drivers[1].give(b"z", b"last")
    assert consumer.receive_into(rows, lengths, times) == 4
    assert list(lengths) == [100, 70, 0, 1]
    assert [bytes(row).rstrip(b"\0") for row in rows] == [b"A" * 80, b"B" * 70, b"", b"z"]
    assert list(times[:3]) == [0, 1, 2]
    assert consumer.receive_into(rows, lengths) == 1
    assert bytes(rows[0, :4]) == b"last"
    reading = consumer.read()
    assert (reading.total("cut"), reading.total("given_back"), reading.total("lent")) == (1, 5, 0)
    assert consumer.receive_into(rows[:0], lengths, timeout_s=1.0) == 0
    assert consumer.receive_into(rows, lengths, timeout_s=0.001) == 0


def test_arrays_that_do_not_match_are_refused(consumer: Consumer) -> None:
    rows, lengths = np.zeros((4, 80), np.uint8), np.zeros(4, np.uint32)
    with pytest.raises(ValueError, match=r"^(rows|lengths|times_ns): needs 4 entries of .*, contiguous$"):
        consumer.receive_into(rows[:, :40], lengths)
    with pytest.raises(ValueError, match=r"^(rows|lengths|times_ns): needs 4 entries of .*, contiguous$"):
        consumer.receive_into(rows, lengths[:3])
    with pytest.raises(ValueError, match=r"^(rows|lengths|times_ns): needs 4 entries of .*, contiguous$"):
        consumer.receive_into(rows, np.zeros(8, np.uint32)[::2])
    with pytest.raises(ValueError, match=r"^(rows|lengths): needs 4 entries of uint"):
        consumer.receive_into(rows.astype(np.uint16), lengths)
    with pytest.raises(ValueError, match=r"^(rows|lengths): needs 4 entries of uint"):
        consumer.receive_into(rows, lengths.astype(np.uint64))
    with pytest.raises(ValueError, match=r"^(rows|lengths|times_ns): needs 4 entries of .*, contiguous$"):
        consumer.receive_into(rows, lengths, np.zeros(2, np.uint64))


def test_the_descriptor_is_readable_while_packets_wait(consumer: Consumer, drivers: list[Driver]) -> None:
    drivers[1].give(b"early")
    assert is_readable(consumer)
    assert len(consumer.receive(1)) == 1
    consumer.receive(1)
    assert not is_readable(consumer)
    for driver in drivers:
        driver.give(b"a", b"b")
    assert is_readable(consumer)
    assert len(consumer.receive(3)) == 3
    assert is_readable(consumer)
    assert len(consumer.receive(3)) == 1
    assert not is_readable(consumer)
    drivers[0].give(b"again")
    assert is_readable(consumer)


def is_readable(consumer: Consumer) -> bool:
    return bool(select.select([consumer], [], [], 0)[0])


def test_a_bell_is_rung_only_for_who_sleeps(consumer: Consumer, drivers: list[Driver]) -> None:
    for _ in range(5):
        drivers[0].give(b"x")
        assert len(consumer.receive(1)) == 1
    assert consumer.bell.rings == 0
    assert consumer.receive(1, timeout_s=0.001) == []
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.append(len(consumer.receive(5, timeout_s=PATIENCE_S))))
    thread.start()
    while not consumer.bell.waiting:
        os.sched_yield()
    drivers[0].give(b"x", b"y")
    thread.join(PATIENCE_S)
    assert got == [2]
    assert consumer.bell.rings == 1


def test_closing_wakes_who_sleeps(consumer: Consumer) -> None:
    errors: list[str] = []

    def sleep() -> None:
        try:
            consumer.receive(1, timeout_s=PATIENCE_S)
        except PortError as error:
            errors.append(str(error))

    thread = threading.Thread(target=sleep)
    thread.start()
    while not consumer.bell.waiting:
        os.sched_yield()
    consumer.close()
    thread.join(PATIENCE_S)
    assert errors == ["consumer c has left"]


def test_closed_consumer_allows_only_readings_and_releases(consumer: Consumer, drivers: list[Driver]) -> None:
    drivers[0].give(b"x")
    (packet,) = consumer.receive(1)
    with consumer:
        pass
    for act in (consumer.fileno, lambda: consumer.receive(1), lambda: consumer.wait(0.0)):
        with pytest.raises(PortError, match=r"^consumer c has left$"):
            act()
    assert packet.release()
    assert consumer.read().total("given_back") == 1


def test_no_descriptor_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    manager = PacketManager(2, name="test", longest_frame=1514)
    for number in range(5):
        manager.add_consumer(f"c{number}", buffers={64: 4})
        manager.add_producer(f"p{number}", buffers={64: 4})
    manager.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
