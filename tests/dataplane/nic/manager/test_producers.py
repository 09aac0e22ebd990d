"""Producers: packets leave in order, large ones in segments; positions, completion, and every reason for a drop."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic import NicPort, memory_pair
from dataplane.nic.buffers.kernels.transmitting import claim, complete
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.structures import Buffer
from tests.dataplane.nic.bursts import Driver, buffer_count, chain, free_addresses

PATIENCE_S = 10.0
Ends = tuple[NicPort, NicPort]


@pytest.fixture
def manager() -> Iterator[PacketManager]:
    made = PacketManager(1, name="test", longest_frame=1514)
    yield made
    made.close()


@pytest.fixture
def driver(manager: PacketManager) -> Driver:
    return Driver(manager)


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = memory_pair(slots=8, slot_bytes=1000)
    yield made
    for end in made:
        end.close()


def test_packets_leave_in_order_and_positions_count_up(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p")
    assert not driver.has_to_transmit()
    frames = [bytes([number]) * (100 * number + 1) for number in range(6)]
    assert [producer.send(frame) for frame in frames] == list(range(6))
    assert driver.has_to_transmit()
    assert not producer.sent(0)
    assert driver.transmit(ends[0].queues[0], 4) == 4
    assert [producer.sent(position) for position in range(6)] == [True] * 4 + [False] * 2
    assert driver.transmit(ends[0].queues[0]) == 2
    assert ends[1].receive(9) == frames
    assert not driver.has_to_transmit()
    reading = producer.read()
    assert (reading.queued, reading.sent, reading.waiting, reading.on_device) == (6, 6, 0, 0)
    assert reading.queued_bytes == sum(map(len, frames))
    assert not any(reading.drops.values())


def test_segments_of_a_packet_name_the_same_element_of_the_queue(
    manager: PacketManager, driver: Driver, ends: Ends
) -> None:
    producer = manager.add_producer("p", buffers={64: 12}, queue_packets=4)
    first, frame = os.urandom(10), os.urandom(600)
    assert [producer.send(first), producer.send(frame)] == [0, 1]
    element = producer.queue.elements[1]
    parts = chain(element.first)
    assert (len(parts), element.segments, element.length) == (10, 10, 600)
    assert parts[-1] == element.last
    assert {Buffer.from_address(part).element for part in parts} == {1}
    driver.transmit(ends[0].queues[0])
    assert ends[1].receive(3) == [first, frame]
    assert len(set(free_addresses(producer.queue.memory[0]))) == buffer_count(producer.queue.memory[0])


def test_a_full_queue_or_spent_reserve_takes_no_packet(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p", queue_packets=4, buffers={64: 6})
    assert [producer.send(b"x") for _ in range(5)] == [0, 1, 2, 3, None]
    driver.transmit(ends[0].queues[0])
    assert [producer.send(bytes(length)) for length in (200, 200, 1)] == [4, None, 5]
    reading = producer.read()
    assert (reading.drops["queue_full"], reading.drops["reserve_spent"], reading.queued) == (1, 1, 6)


def test_what_the_device_has_no_room_for_stays_in_line(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p")
    for number in range(12):
        producer.send(bytes([number]))
    assert driver.transmit(ends[0].queues[0]) == 8
    assert driver.transmit(ends[0].queues[0]) == 0
    assert ends[0].read_counters().drops == {}
    assert len(ends[1].receive(3)) == 3
    assert driver.transmit(ends[0].queues[0]) == 3
    assert [frame[0] for frame in ends[1].receive(20)] == list(range(3, 11))
    assert producer.read().waiting == 1


def test_packets_of_wrong_length_are_counted_and_others_sent(
    manager: PacketManager, driver: Driver, ends: Ends
) -> None:
    producer = manager.add_producer("p")
    for length in (1, 1001, 0, 1000):
        producer.send(bytes(length))
    assert driver.transmit(ends[0].queues[0]) == 4
    assert [len(frame) for frame in ends[1].receive(9)] == [1, 1000]
    reading = producer.read()
    assert (reading.sent, reading.drops["too_long"], reading.drops["refused"]) == (2, 1, 1)
    assert producer.sent(3)


def test_a_device_that_is_down_loses_packets_by_name(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p")
    ends[1].close()
    producer.send(b"x")
    assert driver.transmit(ends[0].queues[0]) == 1
    assert (producer.read().drops["down"], producer.sent(0)) == (1, True)


def test_producers_take_turns(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producers = [manager.add_producer(f"p{number}") for number in range(3)]
    for producer in producers:
        for _ in range(5):
            producer.send(producer.name.encode())
    driver.transmit(ends[0].queues[0], 6)
    assert sorted(ends[1].receive(9)) == [b"p0", b"p0", b"p1", b"p1", b"p2", b"p2"]


def test_a_producer_writes_into_its_buffers_in_place(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p", buffers={64: 4}, queue_packets=4)
    library = kernel_library(claim, complete)
    claiming, completing = library.bind(claim), library.bind(complete)
    unwanted = claiming(producer.queue, 200)
    assert claiming(producer.queue, 200) == unwanted
    address = claiming(producer.queue, 5)
    packet = Buffer.from_address(address)
    offset = packet.data - producer._queue.native.memory[0].start
    producer._queue.view[offset : offset + 5] = b"hello"
    assert completing(producer.queue) == 0
    driver.transmit(ends[0].queues[0])
    assert ends[1].receive(1) == [b"hello"]
    assert len(set(free_addresses(producer.queue.memory[0]))) == 4


def test_who_waits_is_woken_when_its_packet_has_left(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p")
    position = producer.send(b"x")
    assert position == 0
    assert not producer.wait_sent(position, 0.001)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(producer.wait_sent(0, PATIENCE_S)))
    thread.start()
    while not producer._sleeper.bell.waiting:
        os.sched_yield()
    driver.transmit(ends[0].queues[0])
    thread.join(PATIENCE_S)
    assert results == [True]
    assert producer._sleeper.bell.rings == 1


def test_what_is_in_line_when_a_producer_leaves_is_counted(manager: PacketManager, driver: Driver, ends: Ends) -> None:
    producer = manager.add_producer("p")
    for _ in range(12):
        producer.send(b"x")
    driver.transmit(ends[0].queues[0])
    with producer:
        pass
    with pytest.raises(PortError, match=r"^producer p has left$"):
        producer.send(b"x")
    with pytest.raises(PortError, match=r"^producer p has left$"):
        producer.wait_sent(11, 1.0)
    assert producer.wait_sent(7, 0.0)
    reading = manager.read()
    assert (reading.departed.queued, reading.departed.sent, reading.memory_bytes) == (12, 8, 0)
    assert reading.departed.producer_drops["producer_left"] == 4
    assert driver.transmit(ends[0].queues[0]) == 0
    assert len(ends[1].receive(20)) == 8


def test_the_thread_with_the_fewest_producers_sends_for_the_next() -> None:
    manager = PacketManager(3, name="test", longest_frame=1514)
    producers = [manager.add_producer(f"p{number}", queue_packets=4) for number in range(6)]
    assert sorted(producer.thread for producer in producers) == [0, 0, 1, 1, 2, 2]
    assert manager.add_producer("q", thread=2, queue_packets=4).thread == 2
    manager.close()
