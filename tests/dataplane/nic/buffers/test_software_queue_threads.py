"""Real threads on software queues: flows stay in order, all packets are accounted for, sleepers are woken."""

from __future__ import annotations

import ctypes
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dataplane.native import (
    Array,
    Struct,
    address,
    array_at,
    as_u64,
    fence,
    kernel,
    kernel_library,
    load_acquire,
    load_u64,
    pointer_to,
    stack_array,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import Bell, arm_bell, disarm_bell, sleep_on
from dataplane.native.locks import sched_yield
from dataplane.nic import memory_pair
from dataplane.nic.buffers.kernels.software_queues import acquire, await_packets, give_back
from dataplane.nic.buffers.kernels.transmitting import has_to_transmit, transmit
from dataplane.nic.buffers.software_queue import ManagerThread, ReceiveQueue
from dataplane.nic.manager.balance import Balance
from dataplane.nic.manager.consumer import Consumer
from dataplane.nic.manager.kernels.distribute import distribute, publish
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.manager.producer import Producer
from dataplane.nic.ports.kernels import receive, release
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.structures import Buffer, Stamp, Verdict
from tests.examples import examples

PATIENCE_S = 30.0
FLOWS = 16
PACKETS = 1000 * examples(15)
BURST = 24
HEADER_BYTES = 24


class Pourer(Struct):
    """A driver thread that hands out numbered packets of some flows."""

    manager: ManagerThread
    epoch: u64
    count: u64
    handed_out: u64
    longest: u64
    flows: u64
    sequence: Array[u64]  # the last one of each flow
    number: u64


class Drinker(Struct):
    """A native consumer of one software queue that checks its packets."""

    queue: ReceiveQueue
    bell: Bell
    stop: u64
    taken: u64
    wrong_order: u64
    wrong_bytes: u64
    seen: Array[u64]  # for each flow of the software queue's driver thread, the last sequence number taken


@kernel
def pour(state: Pourer) -> None:
    """Hand out `count` packets: flow, sequence, length, then bytes derived from them."""
    frame = stack_array(u8, 2048)
    verdict = view(Verdict, address(stack_array(u64, 16)))
    stamp = view(Stamp, address(stack_array(u64, 4)))
    verdict.group = 0
    stamp.time_ns = 0
    stamp.kind = 0
    stamp.queue = 0
    random_number: u64 = state.number + 1
    done: u64 = 0
    while done < state.count:
        state.epoch += 1
        fence()
        i: u64 = 0
        while i < BURST:
            random_number = random_number * 6364136223846793005 + 1442695040888963407
            flow: u64 = (random_number >> 33) % state.flows
            length: u64 = HEADER_BYTES + (random_number >> 40) % state.longest
            state.sequence[flow] += 1
            words = array_at(u64, address(frame))
            words[0] = flow
            words[1] = state.sequence[flow]
            words[2] = length
            offset: u64 = HEADER_BYTES
            while offset < length:
                frame[offset] = u8_of(flow + words[1] + offset)
                offset += 1
            verdict.flow_hash = (flow + 1) * 0x9E37_79B9
            if distribute(state.manager, verdict, frame, as_length(length), stamp):
                state.handed_out += 1
            i += 1
            done += 1
        publish(state.manager)
        store_release(state.epoch, state.epoch + 1)
        if (random_number >> 50) % 4 == 0:
            sched_yield()


@kernel(inline=True)
def u8_of(number: u64) -> u8:
    """Return the low 8 bits."""
    box = stack_array(u64, 1)
    box[0] = number
    return array_at(u8, address(box))[0]


@kernel(inline=True)
def as_length(number: u64) -> u32:
    """Return the low 32 bits."""
    box = stack_array(u64, 1)
    box[0] = number
    return array_at(u32, address(box))[0]


@kernel
def drink(state: Drinker) -> None:
    """Take packets, return them in another order, sleep when there are none, until stopped."""
    packets = stack_array(u64, 16)
    queues = stack_array(u64, 1)
    queues[0] = address(state.queue)
    while True:
        stopping: u64 = load_acquire(state.stop)
        count: u32 = acquire(state.queue, packets, 16)
        i: u32 = 0
        while i < count:
            check(state, view(Buffer, packets[i]))
            i += 1
        state.taken += as_u64(count)
        i = 0
        while i < count:
            # 7 has no factor in common with counts that are not multiples of it; those go in order.
            index: u32 = (i * 7 + 3) % count if count % 7 != 0 else i
            give_back(state.queue, view(Buffer, packets[index]))
            i += 1
        if count == 0:
            if stopping != 0:
                return
            await_packets(state.bell, queues, 1, 1_000_000)


@kernel
def check(state: Drinker, packet: Buffer) -> None:
    """Compare a packet with the poured one, and its number with the flow's last."""
    head = stack_array(u8, 2048)
    offset: u64 = 0
    segment = packet
    while address(segment) != 0:
        i: u64 = 0
        while i < as_u64(segment.length):
            head[offset] = array_at(u8, segment.data)[i]
            offset += 1
            i += 1
        segment = view(Buffer, segment.next)
    flow: u64 = load_u64(head, 0)
    sequence: u64 = load_u64(head, 8)
    if load_u64(head, 16) != offset or offset != as_u64(packet.total):
        state.wrong_bytes += 1
        return
    while offset > HEADER_BYTES:
        offset -= 1
        if head[offset] != u8_of(flow + sequence + offset):
            state.wrong_bytes += 1
    if load_acquire(state.seen[flow]) >= sequence:
        state.wrong_order += 1
    store_release(state.seen[flow], sequence)


@kernel
def serve(manager: ManagerThread, queue: PortQueue, stop: Array[u64]) -> u64:
    """Send queued packets of producers, sleeping on the bell between, until stopped and nothing is queued."""
    taken: u64 = 0
    while True:
        stopping: u64 = load_acquire(stop[0])
        count: u32 = transmit(manager, queue, 64)
        taken += as_u64(count)
        if count > 0:
            continue
        if not has_to_transmit(manager):
            if stopping != 0:
                return taken
            arm_bell(manager.bell)
            if not has_to_transmit(manager):
                sleep_on(manager.bell, 1_000_000_000)
            disarm_bell(manager.bell)
        else:
            sched_yield()


@kernel
def swallow(queue: PortQueue, wanted: u64, line: Array[u64], stop: Array[u64]) -> u64:
    """Receive this many frames of 16 bytes; write their words in sequence."""
    frames = stack_array(u64, 64)
    lengths = stack_array(u32, 64)
    got: u64 = 0
    while got < wanted and load_acquire(stop[0]) == 0:
        count: u32 = receive(queue, frames, lengths, 64)
        i: u32 = 0
        while i < count:
            words = array_at(u64, frames[i])
            line[2 * got] = words[0]
            line[2 * got + 1] = words[1]
            got += 1
            i += 1
        release(queue)
        if count == 0:
            sched_yield()
    return got


def bound() -> tuple[Callable[..., None], Callable[..., None], Callable[..., int], Callable[..., int]]:
    library = kernel_library(pour, drink, serve, swallow)
    return library.bind(pour), library.bind(drink), library.bind(serve), library.bind(swallow)


@contextmanager
def running(*works: Callable[[], object]) -> Iterator[list[threading.Thread]]:
    """Run each in a thread; all of them must end in time."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    yield threads
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def make_pourers(manager: PacketManager, count: int) -> list[Pourer]:
    pourers = []
    for number, thread in enumerate(manager.threads):
        state = Pourer(count=count, longest=600, flows=FLOWS, number=number)
        state.manager = thread
        state.sequence = pointer_to((ctypes.c_uint64 * FLOWS)())
        pourers.append(state)
    manager.follow([lambda state=state: state.epoch for state in pourers])  # type: ignore[misc]
    return pourers


def test_native_consumers_get_flows_in_order_from_two_threads() -> None:
    pouring, drinking, _, _ = bound()
    for balance in Balance:
        manager = PacketManager(2, name="test", longest_frame=1514)
        pourers = make_pourers(manager, PACKETS)
        manager.set_balance("g", balance)
        consumers = [manager.add_consumer(f"c{number}", group="g", buffers={64: 32, 256: 64}) for number in range(2)]
        seen = [pointer_to((ctypes.c_uint64 * FLOWS)()) for _ in pourers]
        drinkers = [drinker(consumer, number, seen[number]) for consumer in consumers for number in range(2)]
        with running(*(lambda state=state: drinking(state) for state in drinkers)):
            with running(*(lambda state=state: pouring(state) for state in pourers)) as threads:
                come_and_go(manager, threads)
            for state in drinkers:
                state.stop = 1
        assert [(state.wrong_order, state.wrong_bytes) for state in drinkers] == [(0, 0)] * 4
        check_sums(manager, pourers)
        reading = manager.read()
        assert (
            sum(consumer.total("taken") for consumer in reading.consumers)
            == sum(drinker.taken for drinker in drinkers)
            > 0
        )
        manager.close()


def drinker(consumer: Consumer, number: int, seen: Array[int]) -> Drinker:
    state = Drinker()
    state.queue, state.bell, state.seen = consumer.queues[number], Bell(fd=-1), seen
    return state


def come_and_go(manager: PacketManager, threads: list[threading.Thread]) -> None:
    """Let a consumer in Python join, hold some packets and leave, as long as the threads run."""
    number = itertools.count()
    while any(thread.is_alive() for thread in threads):
        with manager.add_consumer(f"guest{next(number)}", group="g", buffers={256: 16}) as guest:
            packets = guest.receive(8, timeout_s=0.002)
            assert all(int.from_bytes(bytes(packet)[16:24], "little") == len(packet) for packet in packets)
            for packet in packets[::2]:
                packet.release()
        del packets


def check_sums(manager: PacketManager, pourers: list[Pourer]) -> None:
    reading = manager.read()
    offered = sum(state.count for state in pourers)
    drops = sum(reading.dropped(reason) for reason in ("reserve_spent", "queue_full"))
    assert reading.handed_out == sum(state.handed_out for state in pourers)
    assert reading.handed_out + drops + reading.no_consumer == offered + padding(pourers)
    for consumer in reading.consumers:
        assert consumer.total("lent") == consumer.total("waiting") == consumer.dropped("consumer_left") == 0
        for queue in consumer.queues:
            assert all(buffer.free == buffer.buffers for buffer in queue.buffers)
    past = reading.departed
    assert past.handed_out == past.given_back + past.consumer_drops.get("consumer_left", 0)


def padding(pourers: list[Pourer]) -> int:
    """Return by how many packets the last bursts exceeded the request."""
    return sum(-state.count % BURST for state in pourers)


@pytest.mark.parametrize("balance", list(Balance))
def test_python_consumers_get_flows_in_order_and_return_in_any(balance: Balance) -> None:
    pouring, _, _, _ = bound()
    manager = PacketManager(2, name="test", longest_frame=1514)
    pourers = make_pourers(manager, 40_000)
    manager.set_balance("g", balance)
    consumers = [manager.add_consumer(f"c{number}", group="g", buffers={64: 16, 256: 40}) for number in range(3)]
    last: dict[tuple[int, int], int] = {}
    wrong: list[object] = []
    stop = threading.Event()

    def consume(consumer: Consumer, chance: random.Random) -> None:
        while not stop.is_set() or consumer.read().total("waiting"):
            packets = consumer.receive(chance.randint(1, 20), timeout_s=0.01)
            for packet in packets:
                data = bytes(packet)
                flow, sequence = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")
                queue = packet._owner.thread
                if last.get((queue, flow), 0) >= sequence:
                    wrong.append((queue, flow, sequence))
                last[queue, flow] = sequence
            chance.shuffle(packets)
            for packet in packets[::2]:
                packet.release()

    works = [
        lambda consumer=consumer, seed=seed: consume(consumer, random.Random(seed))
        for seed, consumer in enumerate(consumers)
    ]
    with running(*works):
        with running(*(lambda state=state: pouring(state) for state in pourers)):
            pass
        stop.set()
    assert wrong == []
    assert len(last) > FLOWS
    check_sums(manager, pourers)
    manager.close()


def test_a_sleeping_consumer_is_woken_for_each_packet() -> None:
    pouring, _, _, _ = bound()
    manager = PacketManager(1, name="test", longest_frame=1514)
    (pourer,) = make_pourers(manager, BURST)
    consumer = manager.add_consumer("c", group="g", buffers={256: 200})
    got: list[int] = []

    def consume() -> None:
        while len(got) < 200 * BURST:
            packets = consumer.receive(64, timeout_s=PATIENCE_S)
            if not packets:
                return
            got.extend(len(packet) for packet in packets)

    with running(consume):
        for turn in range(1, 201):
            pouring(pourer)
            deadline = threading.Event()
            while len(got) < turn * BURST and consumer.read().total("waiting"):
                deadline.wait(0)
    assert len(got) == 200 * BURST
    assert 0 < consumer.bell.rings <= 200
    manager.close()


def test_threaded_producers_keep_their_order_and_await_sending() -> None:
    _, _, serving, swallowing = bound()
    manager = PacketManager(1, name="test", longest_frame=1514)
    end, other = memory_pair(slots=16, slot_bytes=64)
    producers = [manager.add_producer(f"p{number}", queue_packets=8) for number in range(3)]
    each, stop, taken = 1500, (ctypes.c_uint64 * 1)(), []
    line = (ctypes.c_uint64 * (2 * each * len(producers)))()

    def produce(number: int, producer: Producer) -> None:
        for sequence in range(each):
            frame = number.to_bytes(8, "little") + sequence.to_bytes(8, "little")
            while (position := producer.send(frame)) is None:
                assert producer.wait_sent(producer.read().queued - 1, PATIENCE_S)
            if sequence % 100 == 0:
                assert producer.wait_sent(position, PATIENCE_S)

    wanted = each * len(producers)
    works = [
        lambda number=number, producer=producer: produce(number, producer) for number, producer in enumerate(producers)
    ]
    with running(
        lambda: taken.append(serving(manager.threads[0], end.queues[0], stop)),
        lambda: taken.append(swallowing(other.queues[0], wanted, line, (ctypes.c_uint64 * 1)())),
    ):
        with running(*works):
            pass
        stop[0] = 1
        manager.ring(0)
    assert taken == [wanted, wanted]
    for number, producer in enumerate(producers):
        assert [line[2 * i + 1] for i in range(wanted) if line[2 * i] == number] == list(range(each))
        reading = producer.read()
        assert (reading.queued, reading.sent, reading.waiting, reading.on_device) == (each, each, 0, 0)
    for port in (end, other):
        port.close()
    manager.close()
