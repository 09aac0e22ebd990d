"""The packet manager: assignment of packets, named drops, and members that come and go."""

from __future__ import annotations

from collections import Counter

import pytest

from dataplane.errors import PortError
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.kernels.distribute import MOST_TOUCHED
from dataplane.nic.manager.packet_manager import MOST_GROUPS, PacketManager
from tests.dataplane.nic.bursts import Driver

BUFFERS = {64: 64}


def make(threads: int = 1) -> tuple[PacketManager, list[Driver]]:
    manager = PacketManager(threads, name="test", longest_frame=1514)
    drivers = [Driver(manager, number) for number in range(threads)]
    manager.follow([lambda driver=driver: driver.epoch for driver in drivers])  # type: ignore[misc]
    return manager, drivers


def join(manager: PacketManager, count: int, **settings: int) -> list[Consumer]:
    return [manager.add_consumer(f"c{number}", group="g", buffers=BUFFERS, **settings) for number in range(count)]


def flows_of(consumer: Consumer) -> list[int]:
    """Return the flows of the waiting packets, and release them."""
    flows = []
    for packet in consumer.receive(1000):
        flows.append(packet.data[0])
        packet.release()
    return flows


def test_a_flow_keeps_its_consumer_and_flows_are_spread_by_hash() -> None:
    manager, (driver,) = make()
    consumers = join(manager, 4)
    seen: dict[int, set[int]] = {}
    for _ in range(3):
        with driver.burst():
            for flow in range(120):
                assert driver.hand(bytes([flow]), flow=flow)
        for number, consumer in enumerate(consumers):
            for flow in flows_of(consumer):
                seen.setdefault(flow, set()).add(number)
    assert all(len(numbers) == 1 for numbers in seen.values())
    counts = Counter(next(iter(numbers)) for numbers in seen.values())
    assert len(seen) == 120
    assert min(counts.values()) > 15
    manager.close()


def test_round_robin_gives_flows_in_turn() -> None:
    manager, (driver,) = make()
    consumers = join(manager, 3)
    manager.set_balance("g", Balance.ROUND_ROBIN)
    for flow in range(30):
        driver.give(bytes([flow]), flow=flow)
    assert [len(flows_of(consumer)) for consumer in consumers] == [10, 10, 10]
    for _ in range(9):
        driver.give(b"x", flow=5)
        assert sum(len(flows_of(consumer)) for consumer in consumers) == 1
    assert [consumer.read().total("handed_out") for consumer in consumers] == [13, 13, 13]
    manager.close()


def test_least_loaded_gives_new_flows_to_who_has_fewest_packets() -> None:
    manager, (driver,) = make()
    busy, idle = join(manager, 2)
    manager.set_balance("g", Balance.LEAST_LOADED)
    driver.give(b"\0", flow=0)
    slow, quick = (busy, idle) if busy.read().total("waiting") else (idle, busy)
    for flow in range(1, 40):
        driver.give(bytes([flow]), flow=flow)
        flows_of(quick)
    assert slow.read().total("handed_out") == 1
    assert quick.read().total("handed_out") == 39
    manager.close()


@pytest.mark.parametrize("balance", list(Balance))
def test_flow_stays_with_its_consumer_while_packets_are_out(balance: Balance) -> None:
    manager, (driver,) = make()
    consumers = join(manager, 1)
    manager.set_balance("g", balance)
    driver.give(b"\1", b"\1", flow=1)
    consumers += [manager.add_consumer(f"late{number}", group="g", buffers=BUFFERS) for number in range(3)]
    for _ in range(10):
        driver.give(b"\1", flow=1)
    held = consumers[0].receive(100)
    assert len(held) == 12
    driver.give(b"\1", flow=1)
    assert consumers[0].read().total("waiting") == 1
    for packet in held + consumers[0].receive(1):
        packet.release()
    owners = set()
    for flow in range(40):
        driver.give(bytes([flow]), flow=flow)
        owners |= {number for number, consumer in enumerate(consumers) if flows_of(consumer)}
    assert owners == {0, 1, 2, 3}
    manager.close()


def test_who_never_gives_back_spends_its_own_reserve_only() -> None:
    manager, (driver,) = make()
    stuck, good = (manager.add_consumer(name, buffers={64: 8}) for name in ("stuck", "good"))
    held = []
    for _ in range(20):
        driver.give(b"x", group=0)
        driver.give(b"y", group=1)
        held += stuck.receive(10)
        assert flows_of(good) == [ord("y")]
    assert stuck.read().dropped("reserve_spent") == 12
    assert stuck.read().total("lent") == len(held) == 8
    assert good.read().queues[0].drops == {"reserve_spent": 0, "queue_full": 0, "consumer_left": 0}
    held.pop().release()
    assert driver.give(b"x", b"x", group=0) == [True, False]
    manager.close()


def test_a_full_queue_and_a_group_without_consumers_are_counted() -> None:
    manager, (driver,) = make()
    consumer = manager.add_consumer("c", buffers=BUFFERS, queue_packets=3)
    empty = manager.group_number("empty")
    assert driver.give(*[b"x"] * 5) == [True] * 3 + [False] * 2
    assert driver.give(b"x", b"x", group=empty) == [False, False]
    assert driver.give(b"x", group=77) == [False]
    reading = manager.read()
    assert (reading.handed_out, reading.dropped("queue_full"), reading.no_consumer) == (3, 2, 3)
    assert {group.name: group.no_consumer for group in reading.groups} == {"c": 0, "empty": 2}
    assert len(consumer.receive(9)) == 3
    assert driver.give(b"x") == [True]
    manager.close()


def test_leaving_consumer_counts_its_queue_and_others_take_over() -> None:
    manager, (driver,) = make()
    consumer, other = join(manager, 2)
    for flow in range(40):
        driver.give(bytes([flow]), flow=flow)
    held, had = consumer.receive(3), consumer.read().total("waiting")
    consumer.close()
    consumer.close()
    assert consumer.read().dropped("consumer_left") == had
    assert consumer.read().total("lent") == 3
    with pytest.raises(PortError, match=r"^consumer c0 has left$"):
        consumer.receive(1)
    before = other.read().total("handed_out")
    for flow in range(20):
        assert driver.give(bytes([flow]), flow=flow) == [True]
    assert other.read().total("handed_out") == before + 20
    taken = manager.read().memory_bytes
    assert bytes(held[0])
    for packet in held:
        assert packet.release()
    assert manager.read().departed.handed_out == 3 + had
    del held, packet
    assert manager.read().memory_bytes < taken
    assert manager.read().handed_out == 60
    manager.close()


def test_queue_is_drained_only_after_bursts_that_may_fill_it() -> None:
    manager, (driver, idle) = make(2)
    consumer, other = join(manager, 2)
    driver.begin()
    for flow in range(20):
        driver.hand(bytes([flow]), flow=flow)
    handed = consumer.read().total("handed_out")
    consumer.close()
    assert consumer.read().dropped("consumer_left") == 0
    assert idle.epoch == 0
    driver.end()
    manager.collect()
    assert manager.read().departed.consumer_drops["consumer_left"] == handed
    assert len(flows_of(other)) == 20 - handed
    manager.close()


def test_names_are_unique_and_threads_exist() -> None:
    manager, _ = make()
    manager.add_consumer("c", buffers=BUFFERS)
    manager.add_producer("p", buffers=BUFFERS)
    with pytest.raises(PortError, match=r"^consumer c already exists on test$"):
        manager.add_consumer("c", buffers=BUFFERS)
    with pytest.raises(PortError, match=r"^producer p already exists on test$"):
        manager.add_producer("p", buffers=BUFFERS)
    with pytest.raises(PortError, match=r"^producer q: there is no driver thread 1$"):
        manager.add_producer("q", thread=1)
    manager.close()
    manager.close()
    with pytest.raises(PortError, match=r"^consumer d: test is closed$"):
        manager.add_consumer("d", buffers=BUFFERS)


def test_consumers_come_and_go_without_a_trace() -> None:
    manager, (driver,) = make()
    for number in range(50):
        consumer = manager.add_consumer(f"c{number}", group="g", buffers=BUFFERS)
        driver.give(b"x", b"y")
        with consumer.receive(1)[0]:
            pass
        consumer.close()
    reading = manager.read()
    assert (reading.consumers, reading.memory_bytes, reading.handed_out) == ((), 0, 100)
    assert reading.departed.given_back == reading.departed.consumer_drops["consumer_left"] == 50
    manager.close()


def test_a_burst_may_reach_more_queues_than_are_noted_at_a_time() -> None:
    manager, (driver,) = make()
    consumers = [manager.add_consumer(f"c{number}", group="g", buffers={64: 4}) for number in range(MOST_TOUCHED + 44)]
    manager.set_balance("g", Balance.ROUND_ROBIN)
    with driver.burst():
        for flow in range(2000):
            driver.hand(b"x", flow=flow)
    assert all(flows_of(consumer) for consumer in consumers)
    reading = manager.read()
    assert (reading.handed_out, reading.dropped("queue_full")) == (1200, 800)
    manager.close()


def test_there_is_a_most_of_groups() -> None:
    manager, (driver,) = make()
    numbers = [manager.group_number(f"g{number}") for number in range(MOST_GROUPS)]
    assert numbers == list(range(MOST_GROUPS))
    assert manager.group_number("g7") == 7
    with pytest.raises(PortError, match=r"^group one too many: test already has 256 groups$"):
        manager.group_number("one too many")
    consumer = manager.add_consumer("c", group="g255", buffers=BUFFERS)
    assert driver.give(b"\5", group=255) == [True]
    assert flows_of(consumer) == [5]
    manager.close()
