"""The traffic manager's kernels behave like `TrafficManager`, packet by packet, over random schedules."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator

import pytest

from dataplane.native import kernel_library, pointer_to
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.core import Core
from dataplane.switch.compiled.memory.pool import BlockPool, give, take
from dataplane.switch.compiled.memory.traffic import (
    NEVER,
    PORT_NUMBERS,
    OutPort,
    Traffic,
    arrived,
    clear,
    dequeue,
    enqueue,
    hold,
    next_arrival_ns,
    next_event_ns,
    occupy,
)
from dataplane.switch.pipeline import Placement
from dataplane.switch.traffic import PortSettings, TrafficManager, gap_of

LIBRARY = kernel_library(take, give, enqueue, dequeue, occupy, clear, hold, arrived, next_event_ns, next_arrival_ns)
Reading = tuple[int, int, int, int, int, int, int]
"""Port, packet, priority, enq_timestamp, enq_qdepth, deq_timedelta, deq_qdepth."""


class NativeTraffic:
    """The kernels behind the interface of `TrafficManager`, as far as the comparison needs it."""

    def __init__(self, ports: list[PortSettings], packets: int = 512) -> None:
        self.pool = BlockPool(packets, 0)
        self.core = Core()
        self.core.packets[0].pool = self.pool.pool
        self.ports = {settings.number: self._make(settings) for settings in ports}
        self.traffic = Traffic()
        self.traffic.ports = pointer_to((ctypes.c_uint64 * len(ports))(*[port.address for port in self.ports.values()]))
        self.traffic.count = len(ports)
        by_number = (ctypes.c_uint64 * PORT_NUMBERS)()
        for number, port in self.ports.items():
            by_number[number] = port.address
        self.traffic.by_number = pointer_to(by_number)
        self.take, self.give = LIBRARY.bind(take), LIBRARY.bind(give)
        self.next_event, self._dequeue = LIBRARY.bind(next_event_ns), LIBRARY.bind(dequeue)
        self._occupy: Callable[..., int] = LIBRARY.bind(occupy)

    @staticmethod
    def _make(settings: PortSettings) -> OutPort:
        port = OutPort()
        port.number, port.limit = settings.number, settings.queue_frames
        port.rate_bps, port.delay_ns = settings.rate_bps or 0, settings.delay_ns
        return port

    def enqueue(self, name: int, port: int, priority: int, now_ns: int) -> bool:
        packet = Packet.from_address(self.take(self.core.packets[0]))
        packet.length, packet.egress_port, packet.priority = name, port, priority
        return LIBRARY.bind(enqueue)(self.traffic, self.core, packet, now_ns)

    def dequeue(self, until_ns: int) -> tuple[int, list[Reading]] | None:
        start_ns = min(self.next_event(port) for port in self.ports.values())
        if start_ns > until_ns or start_ns == NEVER:
            return None
        readings: list[Reading] = []
        for number in sorted(self.ports):
            port = self.ports[number]
            if self.next_event(port) == start_ns:
                block: int = self._dequeue(port, start_ns)
                assert port.start_ns == start_ns
                while block:
                    packet = Packet.from_address(block)
                    readings.append(_reading(packet, start_ns))
                    block = packet.next
                    self.give(self.core.packets[0], packet)
        return start_ns, readings

    def occupy(self, number: int, length: int, start_ns: int) -> int:
        return self._occupy(self.ports[number], length, start_ns)


def _reading(packet: Packet, start_ns: int) -> Reading:
    enqueued_us = packet.enqueued_ns // 1000
    waited_us = start_ns // 1000 - enqueued_us
    return (
        packet.egress_port,
        packet.length,
        packet.priority,
        enqueued_us,
        packet.enq_qdepth,
        waited_us,
        packet.deq_qdepth,
    )


def random_ports(rng: random.Random) -> list[PortSettings]:
    rates = (None, None, 1_000_000, 9_999_991, 10_000_000_000)
    numbers = rng.sample(range(PORT_NUMBERS), rng.randint(1, 5))
    return [PortSettings(number, rng.choice(rates), rng.choice((1, 3, 8))) for number in numbers]


def schedule(rng: random.Random, numbers: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (now, port, priority): bursts at one instant and pauses of all lengths, some ports unknown."""
    now_ns = rng.randrange(10**6)
    for _ in range(150):
        now_ns += rng.choice((0, 0, 0, 1, 999, 40_000, 2_000_000))
        yield now_ns, rng.choice([*numbers, 511, 600]), rng.randrange(8)


@pytest.mark.parametrize("seed", range(30))
def test_every_packet_leaves_when_the_reference_lets_it_leave(seed: int) -> None:
    rng = random.Random(seed)
    settings = random_ports(rng)
    reference, native = TrafficManager(settings), NativeTraffic(settings)
    for item in settings:
        packets_per_s = rng.choice((0, 0, 777, 300_000))
        reference.set_packet_rate(item.number, packets_per_s)
        native.ports[item.number].gap_ns = gap_of(packets_per_s)
    for name, (now_ns, port, priority) in enumerate(schedule(rng, [item.number for item in settings])):
        run_both(reference, native, now_ns, rng)
        assert reference.enqueue(Placement(name, port, priority, 0), now_ns) is native.enqueue(
            name, port, priority, now_ns
        )
    run_both(reference, native, 10**12, rng)
    for item in settings:
        drops = reference.port_drops(item.number)
        assert native.ports[item.number].queue_full == drops.get("queue_full", 0)
    assert native.traffic.no_such_port == reference.drops.get("no_such_port", 0)
    assert native.pool.in_use(native.core.packets[0]) == 0


def run_both(reference: TrafficManager, native: NativeTraffic, until_ns: int, rng: random.Random) -> None:
    while True:
        burst, ours = reference.dequeue(until_ns), native.dequeue(until_ns)
        if burst is None:
            assert ours is None
            return
        expected = [
            (
                item.port,
                item.packet,
                item.priority,
                item.enq_timestamp_us,
                item.enq_qdepth,
                item.deq_timedelta_us,
                item.deq_qdepth,
            )
            for item in burst.packets
        ]
        assert ours == (burst.start_ns, expected)
        for item in burst.packets:
            if rng.random() < 0.9:  # the others are dropped by egress
                length = rng.choice((60, 1514, 9000))
                departs_ns = reference.occupy(item.port, length, burst.start_ns)
                assert native.occupy(item.port, length, burst.start_ns) == departs_ns


def test_frames_waiting_at_a_replacement_are_dropped_and_counted() -> None:
    native = NativeTraffic([PortSettings(1, 1_000_000), PortSettings(2)])
    for name in range(5):
        assert native.enqueue(name, 1, name, 0)
    for port in native.ports.values():
        LIBRARY.bind(clear)(port, native.core)
    assert (native.ports[1].program_replaced, native.ports[2].program_replaced) == (5, 0)
    assert native.pool.in_use(native.core.packets[0]) == 0
    assert native.dequeue(10**12) is None
    assert native.enqueue(7, 1, 3, 50)
    assert native.dequeue(10**12) == (50, [(1, 7, 3, 0, 0, 0, 0)])


def test_cable_returns_frames_in_order_once_they_arrive() -> None:
    native = NativeTraffic([PortSettings(1)])
    port, core = native.ports[1], native.core
    blocks = [native.take(core.packets[0]) for _ in range(3)]
    for block, arrives_ns in zip(blocks, (100, 100, 250), strict=True):
        LIBRARY.bind(hold)(port, block, arrives_ns)
    take_arrived = LIBRARY.bind(arrived)
    assert LIBRARY.bind(next_arrival_ns)(port) == 100
    assert take_arrived(port, 99) == 0
    assert [take_arrived(port, 200) for _ in range(3)] == [*blocks[:2], 0]
    assert (LIBRARY.bind(next_arrival_ns)(port), port.in_flight) == (250, 1)
    assert take_arrived(port, 250) == blocks[2]
    assert LIBRARY.bind(next_arrival_ns)(port) == NEVER


def test_blocks_are_bounded_and_come_back() -> None:
    native = NativeTraffic([PortSettings(1)], packets=100)
    cache = native.core.packets[0]
    blocks = [native.take(cache) for _ in range(101)]
    assert blocks[-1] == 0
    assert len(set(blocks)) == 101
    assert native.pool.in_use(cache) == 100
    for block in blocks[:100]:
        native.give(cache, block)
    assert native.pool.in_use(cache) == 0
    assert cache.blocks < 100  # some went back to the pool, for others to take
    assert {native.take(cache) for _ in range(100)} == set(blocks[:100])


def test_cable_with_its_last_frame_being_taken_promises_nothing() -> None:
    port = OutPort()
    port.in_flight = 1  # as between the two stores of `arrived` on another thread
    assert LIBRARY.bind(next_arrival_ns)(port) == NEVER
