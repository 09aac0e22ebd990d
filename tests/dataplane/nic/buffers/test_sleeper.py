"""Python threads that sleep on bells: signal handlers, several waiters, polled descriptors."""

from __future__ import annotations

import select
import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from dataplane.errors import PortError
from dataplane.nic import NicSettings, memory_pair, open_nic
from dataplane.nic.buffers.sleeper import Sleeper
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.packet_manager import PacketManager
from tests.dataplane.nic.bursts import Driver
from tests.waiting import wait_until

PATIENCE_S = 10.0


@pytest.fixture
def manager() -> Iterator[PacketManager]:
    made = PacketManager(2, name="test", longest_frame=1514)
    yield made
    made.close()


@pytest.fixture
def alarm() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Run a function in a signal handler of the main thread, soon."""
    before = signal.getsignal(signal.SIGALRM)

    def ring(function: Callable[[], None]) -> None:
        signal.signal(signal.SIGALRM, lambda *_: function())
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    yield ring
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_signal_handler_closes_what_its_thread_waits_for(alarm: Callable[[Callable[[], None]], None]) -> None:
    ends = memory_pair()
    nic = open_nic(ends[0], NicSettings())
    consumer = nic.add_consumer("c", buffers=16)
    alarm(nic.close)
    with pytest.raises(PortError, match="has left"):
        consumer.receive(1, timeout_s=PATIENCE_S)
    ends[1].close()


def test_signal_handler_may_close_a_producer_being_waited_for(
    manager: PacketManager, alarm: Callable[[Callable[[], None]], None]
) -> None:
    producer = manager.add_producer("p")
    position = producer.send(bytes(60))
    assert position is not None
    alarm(manager.close)
    with pytest.raises(PortError, match="has left"):
        producer.wait_sent(position, PATIENCE_S)


def wait_by_receive(consumer: Consumer) -> object:
    return consumer.receive(1, timeout_s=0.001)


def wait_by_copy(consumer: Consumer) -> object:
    return consumer.receive_into(np.zeros((1, 64), np.uint8), np.zeros(1, np.uint32), timeout_s=0.001)


def just_wait(consumer: Consumer) -> object:
    return consumer.wait(0.001)


@pytest.mark.parametrize("wait", [wait_by_receive, wait_by_copy, just_wait])
def test_a_polled_descriptor_still_wakes_after_a_wait_in_vain(
    manager: PacketManager, wait: Callable[[Consumer], object]
) -> None:
    consumer = manager.add_consumer("c", buffers={64: 16})
    descriptor = consumer.fileno()
    assert not wait(consumer)
    Driver(manager).give(b"abc")
    assert select.select([descriptor], [], [], PATIENCE_S)[0]


def test_all_threads_that_wait_look_when_the_bell_rings() -> None:
    sleeper, facts = Sleeper(), set[str]()
    results: dict[str, bool] = {}

    def wait(fact: str) -> None:
        results[fact] = sleeper.wait(lambda: fact in facts, PATIENCE_S)

    threads = [threading.Thread(target=wait, args=(fact,)) for fact in "abc"]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for count, fact in enumerate("cab", start=1):
        facts.add(fact)
        sleeper.wake()
        wait_until(lambda: len(results) == count)  # noqa: B023 - looked at in this round
    for thread in threads:
        thread.join()
    assert time.monotonic() - began < PATIENCE_S
    assert results == dict.fromkeys("abc", True)
    sleeper.close()
    assert sleeper.fileno() == -1


def receive_by_packets(consumer: Consumer) -> list[int]:
    return [packet.data[0] for packet in consumer.receive(8)]


def receive_by_copy(consumer: Consumer) -> list[int]:
    rows = np.zeros((8, 64), np.uint8)
    count = consumer.receive_into(rows, np.zeros(8, np.uint32))
    return [int(row[0]) for row in rows[:count]]


@pytest.mark.parametrize("receive", [receive_by_packets, receive_by_copy])
def test_no_driver_thread_is_starved_by_a_busy_one(
    manager: PacketManager, receive: Callable[[Consumer], list[int]]
) -> None:
    consumer = manager.add_consumer("c", buffers={64: 16})
    drivers = [Driver(manager, number) for number in range(2)]
    seen = []
    for _ in range(10):
        for driver in drivers:
            driver.give(*[bytes([driver.number])] * 16)
        seen += receive(consumer)
    assert seen.count(0) == seen.count(1) == 40


def test_departed_producer_is_kept_while_a_driver_may_wake_it(manager: PacketManager) -> None:
    epoch = 0
    manager.follow([lambda: epoch, lambda: 0])
    producer = manager.add_producer("p", thread=0)
    descriptor = producer.queue.bell.fd
    epoch = 1
    producer.close()
    epoch = 3  # another turn: the producer has no packets left, but this turn may have settled its last one
    manager.collect()
    manager.collect()
    assert producer.queue.bell.fd == descriptor
    epoch = 4
    manager.collect()
    assert producer.queue.bell.fd == -1


def test_no_bell_outlives_the_manager(manager: PacketManager) -> None:
    producer, consumer = manager.add_producer("p"), manager.add_consumer("c", buffers=16)
    producer.send(bytes(60))
    manager.close()
    assert (producer.queue.bell.fd, consumer.bell.fd) == (-1, -1)
