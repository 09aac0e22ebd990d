"""Operations of driver threads, consumers and producers in any order, against a plain model."""

from __future__ import annotations

import ctypes
import gc
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dataplane.nic import memory_pair
from dataplane.nic.buffers.kernel_calls import queue_kernels
from dataplane.nic.buffers.packets import Packet
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.manager.producer import Producer
from dataplane.nic.structures import Buffer
from tests.dataplane.nic.bursts import Driver, buffer_count, chain, free_addresses, waiting_addresses
from tests.examples import examples

THREADS = 2
SIZES = {16: 3, 40: 2}
QUEUE_PACKETS = 4
ROW_BYTES = 64
FLOWS = st.integers(0, 5)
LENGTHS = st.sampled_from([0, 1, 15, 16, 17, 32, 39, 40, 41, 56, 57, 80, 81, 128, 129]) | st.integers(0, 140)


@dataclass
class Sent:
    """A packet in the model."""

    data: bytes
    flow: int
    sizes: list[int]


@dataclass
class ModelQueue:
    """Link between a thread and a consumer, in the model."""

    free: dict[int, int] = field(default_factory=lambda: dict(SIZES))
    unpublished: deque[Sent] = field(default_factory=deque)
    waiting: deque[Sent] = field(default_factory=deque)
    lent: int = 0
    given_back: int = 0
    handed_out: int = 0
    refused: int = 0
    drops: dict[str, int] = field(default_factory=lambda: {"reserve_spent": 0, "queue_full": 0, "consumer_left": 0})

    def take(self, length: int) -> list[int]:
        """Return the sizes that a packet takes, none if the reserve is spent."""
        if sum(size * count for size, count in self.free.items()) < length or not any(self.free.values()):
            return []
        taken = []
        while True:
            at_hand = [size for size, count in sorted(self.free.items()) if count]
            size = next((size for size in at_hand if size >= length), at_hand[-1])
            self.free[size] -= 1
            taken.append(size)
            length -= size
            if length <= 0:
                return taken

    def put_back(self, packet: Sent) -> None:
        for size in packet.sizes:
            self.free[size] += 1


@dataclass
class ModelConsumer:
    """A consumer and its expected packets."""

    consumer: Consumer
    group: int
    queues: list[ModelQueue] = field(default_factory=lambda: [ModelQueue() for _ in range(THREADS)])
    held: list[tuple[Packet, int, Sent]] = field(default_factory=list)
    noted: list[int] = field(default_factory=list)
    gone: bool = False


class SoftwareQueueMachine(RuleBasedStateMachine):
    """Two driver threads, two groups of consumers, producers on a cable in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = PacketManager(THREADS, name="test", longest_frame=1514)
        self.drivers = [Driver(self.manager, number) for number in range(THREADS)]
        self.manager.follow([lambda driver=driver: driver.epoch for driver in self.drivers])  # type: ignore[misc]
        self.groups = [self.manager.group_number(name) for name in ("left", "right")]
        self.balances = [Balance.FLOW_HASH, Balance.FLOW_HASH]
        self.consumers: list[ModelConsumer] = []
        self.leaving: list[ModelConsumer] = []
        self.no_consumer = 0
        self.number = 0
        self.outstanding: dict[tuple[int, int, int], dict[str, int]] = {}
        self.ends = memory_pair(slots=4, slot_bytes=100)
        self.producers: list[tuple[Producer, deque[bytes]]] = []
        self.line: deque[bytes] = deque()

    # Driver threads and consumers

    @rule(group=st.integers(0, 1))
    def join(self, group: int) -> None:
        if len(self.consumers) == 5:
            return
        self.number += 1
        name = ("left", "right")[group]
        consumer = self.manager.add_consumer(f"c{self.number}", group=name, buffers=SIZES, queue_packets=QUEUE_PACKETS)
        self.consumers.append(ModelConsumer(consumer, group))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.consumers))
        self.consumers.remove(model)
        model.noted = [driver.epoch for driver in self.drivers]
        self.leaving.append(model)
        model.consumer.close()
        self.settle_leaving()

    @rule(group=st.integers(0, 1), balance=st.sampled_from(Balance))
    def choose_balance(self, group: int, balance: Balance) -> None:
        self.manager.set_balance(("left", "right")[group], balance)
        self.balances[group] = balance

    @rule(thread=st.integers(0, 1), frames=st.lists(st.tuples(st.integers(0, 1), FLOWS, LENGTHS), max_size=6))
    def distribute(self, thread: int, frames: list[tuple[int, int, int]]) -> None:
        driver = self.drivers[thread]
        inside = driver.epoch % 2 == 1
        if not inside:
            driver.begin()
        for group, flow, length in frames:
            self.hand_one(driver, group, flow, length)
        if not inside:
            self.end_burst(thread)

    @rule(thread=st.integers(0, 1))
    def begin_burst(self, thread: int) -> None:
        if self.drivers[thread].epoch % 2 == 0:
            self.drivers[thread].begin()

    @rule(thread=st.integers(0, 1))
    def end_burst(self, thread: int) -> None:
        if self.drivers[thread].epoch % 2 == 0:
            return
        self.drivers[thread].end()
        for model in self.consumers + self.leaving:
            queue = model.queues[thread]
            queue.waiting += queue.unpublished
            queue.unpublished.clear()
        self.settle_leaving()

    def hand_one(self, driver: Driver, group: int, flow: int, length: int) -> None:
        self.number += 1
        data = bytes((self.number + index) & 255 for index in range(length))
        members = [model for model in self.consumers if model.group == group]
        before = [self.offered(model, driver.number) for model in members]
        taken = driver.hand(data, group=self.groups[group], flow=flow)
        if not members:
            assert not taken
            self.no_consumer += 1
            return
        chosen = [
            model
            for model, count in zip(members, before, strict=True)
            if self.offered(model, driver.number) == count + 1
        ]
        assert len(chosen) == 1
        model = chosen[0]
        self.check_order(model, members, (driver.number, group, flow))
        queue = model.queues[driver.number]
        if len(queue.waiting) + len(queue.unpublished) >= QUEUE_PACKETS:
            queue.drops["queue_full"] += 1
            assert not taken
        elif not (sizes := queue.take(length)):
            queue.drops["reserve_spent"] += 1
            assert not taken
        else:
            assert taken
            queue.unpublished.append(Sent(data, flow, sizes))
            queue.handed_out += 1
            self.flow_of(driver.number, group, flow)[model.consumer.name] = (
                self.flow_of(driver.number, group, flow).get(model.consumer.name, 0) + 1
            )

    def check_order(self, chosen: ModelConsumer, members: list[ModelConsumer], flow: tuple[int, int, int]) -> None:
        holders = self.flow_of(*flow)
        present = [model.consumer.name for model in members if holders.get(model.consumer.name, 0)]
        assert present in ([], [chosen.consumer.name])

    def flow_of(self, thread: int, group: int, flow: int) -> dict[str, int]:
        return self.outstanding.setdefault((thread, group, flow), {})

    @staticmethod
    def offered(model: ModelConsumer, thread: int) -> int:
        queue = model.consumer.queues[thread]
        return int(queue.put + queue.queue_full + queue.reserve_spent)

    # Consumers

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), limit=st.integers(0, 5))
    def receive(self, data: st.DataObject, limit: int) -> None:
        model = data.draw(st.sampled_from(self.consumers))
        expected = min(limit, sum(len(queue.waiting) for queue in model.queues))
        packets = model.consumer.receive(limit)
        assert len(packets) == expected
        for packet in packets:
            queue = model.queues[packet.queue]
            sent = queue.waiting.popleft()
            queue.lent += 1
            assert bytes(packet) == sent.data
            assert [len(part) for part in packet.segments[:-1]] == sent.sizes[:-1]
            model.held.append((packet, packet.queue, sent))

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), limit=st.integers(1, 5))
    def receive_into(self, data: st.DataObject, limit: int) -> None:
        model = data.draw(st.sampled_from(self.consumers))
        rows, lengths = np.full((limit, ROW_BYTES), 0xEE, np.uint8), np.zeros(limit, np.uint32)
        first = model.consumer._next  # each call begins with another software queue, so that none starves
        count = model.consumer.receive_into(rows, lengths)
        row = 0
        for turn in range(len(model.queues)):
            thread = (first + turn) % len(model.queues)
            queue = model.queues[thread]
            while queue.waiting and row < count:
                sent = queue.waiting.popleft()
                kept = sent.data[:ROW_BYTES]
                assert lengths[row] == len(sent.data)
                assert bytes(rows[row]) == kept + bytes([0xEE]) * (ROW_BYTES - len(kept))
                self.came_back(model, thread, sent)
                row += 1
        assert row == count
        assert count == limit or not any(queue.waiting for queue in model.queues)

    @precondition(lambda self: any(model.held for model in self.consumers + self.leaving))
    @rule(data=st.data(), by_collection=st.booleans())
    def give_back(self, data: st.DataObject, by_collection: bool) -> None:
        model = data.draw(st.sampled_from([consumer for consumer in self.consumers + self.leaving if consumer.held]))
        position = data.draw(st.integers(0, len(model.held) - 1))
        packet, thread, sent = model.held.pop(position)
        model.queues[thread].lent -= 1
        self.came_back(model, thread, sent)
        if by_collection:
            del packet
            gc.collect(0)
        else:
            address = packet._address
            assert packet.release()
            assert not packet.release()
            assert not queue_kernels().give_back(packet._owner.address, address)
            model.queues[thread].refused += 2
        self.settle_leaving()

    def came_back(self, model: ModelConsumer, thread: int, sent: Sent) -> None:
        queue = model.queues[thread]
        queue.put_back(sent)
        queue.given_back += 1
        self.let_go(model, thread, sent)

    def let_go(self, model: ModelConsumer, thread: int, sent: Sent) -> None:
        self.flow_of(thread, model.group, sent.flow)[model.consumer.name] -= 1

    def settle_leaving(self) -> None:
        """Discard packets for consumers that left once every thread has moved on; forget those without packets."""
        self.manager.collect()
        for model in tuple(self.leaving):
            now = [driver.epoch for driver in self.drivers]
            if not model.gone and all(
                then % 2 == 0 or then != is_now for then, is_now in zip(model.noted, now, strict=True)
            ):
                model.gone = True
                for thread, queue in enumerate(model.queues):
                    while queue.waiting:
                        sent = queue.waiting.popleft()
                        queue.put_back(sent)
                        queue.drops["consumer_left"] += 1
                        self.let_go(model, thread, sent)
            if model.gone and not model.held:
                self.check_reading(model)
                self.leaving.remove(model)
                assert model.consumer.queues == []

    # Producers

    @precondition(lambda self: len(self.producers) < 3)
    @rule()
    def add_producer(self) -> None:
        self.number += 1
        producer = self.manager.add_producer(f"p{self.number}", thread=0, queue_packets=4, buffers=SIZES)
        self.producers.append((producer, deque()))

    @precondition(lambda self: self.producers)
    @rule(data=st.data(), length=LENGTHS)
    def send(self, data: st.DataObject, length: int) -> None:
        producer, line = data.draw(st.sampled_from(self.producers))
        self.number += 1
        frame = bytes((self.number + index) & 255 for index in range(length))
        before = producer.read()
        position = producer.send(frame)
        reading = producer.read()
        if position is None:
            dropped = "queue_full" if len(line) == 4 else "reserve_spent"
            assert reading.drops[dropped] == before.drops[dropped] + 1
        else:
            assert position == before.queued
            assert not producer.sent(position)
            line.append(frame)

    @rule(limit=st.integers(1, 6))
    def transmit(self, limit: int) -> None:
        before = {producer.name: producer.read() for producer, _ in self.producers}
        taken = self.drivers[0].transmit(self.ends[0].queues[0], limit)
        total = 0
        for producer, line in self.producers:
            gone = before[producer.name].waiting - producer.read().waiting
            total += gone
            for _ in range(gone):
                frame = line.popleft()
                if 1 <= len(frame) <= 100:
                    self.line.append(frame)
            assert producer.read().on_device == 0
        assert total == taken
        assert len(self.line) <= 4
        if taken < limit and len(self.line) < 4:
            assert not any(line for _, line in self.producers)

    @rule(limit=st.integers(1, 5))
    def take_from_cable(self, limit: int) -> None:
        frames = self.ends[1].receive(limit)
        # Software queues take turns, so that only the order within each is known.
        for frame in frames:
            assert frame in self.line
            self.line.remove(frame)

    @precondition(lambda self: self.producers)
    @rule(data=st.data())
    def remove_producer(self, data: st.DataObject) -> None:
        leaver = data.draw(st.sampled_from(self.producers))
        self.producers.remove(leaver)
        producer, line = leaver
        producer.close()
        if self.drivers[0].epoch % 2 == 0 and self.drivers[1].epoch % 2 == 0:
            self.manager.collect()
            assert producer.read().drops["producer_left"] == len(line)

    # What holds at any time

    @invariant()
    def all_adds_up(self) -> None:
        assert self.manager.read().no_consumer == self.no_consumer
        for model in self.consumers + self.leaving:
            self.check_reading(model)

    def check_reading(self, model: ModelConsumer) -> None:
        for reading, queue in zip(model.consumer.read().queues, model.queues, strict=True):
            waiting = len(queue.waiting) + len(queue.unpublished)
            assert (reading.waiting, reading.lent, reading.given_back) == (waiting, queue.lent, queue.given_back)
            assert (reading.handed_out, reading.refused_releases) == (queue.handed_out, queue.refused)
            assert reading.drops == queue.drops
            assert reading.handed_out == reading.waiting + reading.taken + reading.drops["consumer_left"]
            assert {buffer.size_bytes: buffer.free for buffer in reading.buffers} == queue.free

    @invariant()
    def every_buffer_is_in_one_place(self) -> None:
        for model in self.consumers + self.leaving:
            for thread, queue in enumerate(model.consumer.queues):
                places = free_addresses(queue.memory[0]) + waiting_addresses(queue)
                for packet, number, _ in model.held:
                    places += chain(packet._address) if number == thread else []
                assert len(set(places)) == len(places) == buffer_count(queue.memory[0])

    @invariant()
    def every_buffer_to_send_from_is_free_or_in_line(self) -> None:
        for producer, line in self.producers:
            queue = producer.queue
            elements = [queue.elements[position & queue.mask] for position in range(queue.head, queue.tail)]
            places = free_addresses(queue.memory[0])
            for element, frame in zip(elements, line, strict=True):
                addresses = chain(element.first)
                places += addresses
                parts = [Buffer.from_address(address) for address in addresses]
                assert b"".join(ctypes.string_at(part.data, part.length) for part in parts) == frame
                assert (element.length, element.segments, element.last) == (len(frame), len(addresses), addresses[-1])
            assert len(set(places)) == len(places) == buffer_count(queue.memory[0])

    def teardown(self) -> None:
        for thread in range(THREADS):
            self.end_burst(thread)
        for end in self.ends:
            end.close()
        self.manager.close()


TestSoftwareQueueMachine = SoftwareQueueMachine.TestCase
TestSoftwareQueueMachine.settings = settings(max_examples=examples(40), stateful_step_count=50, deadline=None)
