"""The traffic manager as kernels: the equivalent of `dataplane.switch.traffic`, with one port's queues behind one lock.

A worker that serves a port holds its `egress_lock` from the first packet taken to the last frame sent, so that a flow
stays in order; the queues themselves are locked only while a packet goes in or out. Times are nanoseconds.
"""

from __future__ import annotations

from typing import Literal

from dataplane.clock import NS_PER_S
from dataplane.native import (
    Array,
    Inline,
    Struct,
    address,
    as_u32,
    as_u64,
    atomic_add,
    count_leading_zeros,
    kernel,
    load_relaxed,
    reference,
    u64,
    view,
)
from dataplane.native.locks import lock, unlock
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.core import Core
from dataplane.switch.compiled.memory.hello_state import Hello
from dataplane.switch.compiled.memory.pool import give
from dataplane.switch.random_numbers import FACTORS, INCREMENT
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES

PORT_NUMBERS = 512
OVERHEAD_BYTES = WIRE_OVERHEAD_BYTES
BITS_PER_BYTE = 8
NEVER = (1 << 64) - 1
HIGHEST_BIT = 63
FIRST_FACTOR, SECOND_FACTOR = FACTORS


class Queue(Struct):
    """Packets of one priority, linked by `next`."""

    first: u64
    last: u64
    depth: u64


class OutPort(Struct):
    """A port's queues, times, cable and counters; the comments name the lock that protects each field."""

    number: u64
    rate_bps: u64  # 0: infinite
    limit: u64  # capacity of a queue in frames
    gap_ns: u64  # minimum between two packets that leave their queues
    delay_ns: u64
    jitter_ns: u64  # a frame takes up to this much less or more than the delay; at most the delay
    is_up: u64
    hello: Hello  # null until hellos are first set

    lock: u64
    waiting: u64
    ready: u64  # one bit per priority: its queue is not empty
    due_ns: u64
    queues: Inline[Queue, Literal[8]]
    queue_full: u64
    program_replaced: u64

    egress_lock: u64
    sender: u64  # address of the PortQueue with frames its device had no room for: none may overtake them; or 0
    start_ns: u64  # when the last taken packets left their queue
    free_ns: u64  # written under both locks
    carry: u64
    flight_first: u64  # frames on the cable, linked by `next`; `enqueued_ns` is when they arrive
    flight_last: u64
    in_flight: u64
    cable_full: u64
    chance: u64  # splitmix64, the source of jitter
    tx_frames: u64
    tx_bytes: u64
    tx_port_down: u64
    no_receiver: u64  # only for the CPU port: no client takes packet-ins
    receiver_full: u64
    hello_forged: u64

    rx_frames: u64  # from here on: added to atomically
    rx_bytes: u64
    oversize: u64
    no_program: u64
    rx_port_down: u64


class Traffic(Struct):
    """All ports of a switch, in the order in which they are served, and by number."""

    ports: Array[u64]  # addresses
    count: u64
    by_number: Array[u64]  # PORT_NUMBERS addresses, 0: no such port
    no_such_port: u64
    deflect_session: u64  # the clone session for packets that a full queue refuses, or 0


@kernel
def enqueue(traffic: Traffic, core: Core, packet: Packet, now_ns: u64) -> bool:
    """Queue a packet at its port and priority, or drop and count it and return False.

    Packets to be deflected are left with the core.
    """
    where: u64 = 0
    if packet.egress_port < PORT_NUMBERS:
        where = traffic.by_number[packet.egress_port]
    if where == 0:
        atomic_add(traffic.no_such_port, 1)
        give(core.packets[0], packet)
        return False
    port = view(OutPort, where)
    lock(reference(port.lock))
    queued = _append(port, packet, now_ns)
    unlock(reference(port.lock))
    if not queued:
        if traffic.deflect_session != 0 and packet.refused_depth == 0:
            packet.refused_depth = packet.enq_qdepth
            packet.next = core.refused_first
            core.refused_first = address(packet)
        else:
            give(core.packets[0], packet)
    return queued


@kernel
def _append(port: OutPort, packet: Packet, now_ns: u64) -> bool:
    queue = port.queues[packet.priority]
    if queue.depth >= port.limit:
        port.queue_full += 1
        packet.enq_qdepth = as_u32(queue.depth)
        return False
    packet.next = 0
    packet.enqueued_ns = now_ns
    packet.enq_qdepth = packet.refused_depth if packet.refused_depth != 0 else as_u32(queue.depth)
    if queue.depth == 0:
        queue.first = address(packet)
    else:
        view(Packet, queue.last).next = address(packet)
    queue.last = address(packet)
    queue.depth += 1
    port.ready |= one_bit(as_u64(packet.priority))
    port.waiting += 1
    if port.waiting == 1:
        port.due_ns = now_ns if now_ns > port.free_ns else port.free_ns
    return True


@kernel(inline=True)
def next_event_ns(port: OutPort) -> u64:
    """Return when a waiting packet can leave its queue, or NEVER; without the lock, only a hint."""
    if load_relaxed(port.waiting) == 0:
        return NEVER
    due_ns = load_relaxed(port.due_ns)
    free_ns = load_relaxed(port.free_ns)
    return due_ns if due_ns > free_ns else free_ns


@kernel
def dequeue(port: OutPort, until_ns: u64) -> u64:
    """Return the first of the packets that leave at the port's next instant, linked by `next`; 0 if that is later.

    A port of finite rate, in bits or packets, yields one, one of infinite rate all it has. `start_ns` is the instant
    afterwards. The caller holds `egress_lock`.
    """
    first: u64 = 0
    lock(reference(port.lock))
    start_ns = next_event_ns(port)
    if start_ns <= until_ns and start_ns != NEVER:
        port.start_ns = start_ns
        port.due_ns = start_ns
        first = _pop(port)
        last = view(Packet, first)
        while port.rate_bps == 0 and port.gap_ns == 0 and port.waiting > 0:
            behind = _pop(port)
            last.next = behind
            last = view(Packet, behind)
    unlock(reference(port.lock))
    return first


@kernel
def _pop(port: OutPort) -> u64:
    priority = HIGHEST_BIT - count_leading_zeros(port.ready)
    queue = port.queues[priority]
    packet = view(Packet, queue.first)
    queue.first = packet.next
    queue.depth -= 1
    if queue.depth == 0:
        port.ready ^= one_bit(priority)
    port.waiting -= 1
    packet.deq_qdepth = as_u32(queue.depth)
    packet.next = 0
    return address(packet)


@kernel
def occupy(port: OutPort, length_bytes: u64, start_ns: u64) -> u64:
    """Keep a port busy with a frame from `start_ns` on; return when its last bit (and gap) has left."""
    if port.rate_bps == 0 and port.gap_ns == 0:
        return start_ns
    lock(reference(port.lock))
    if start_ns > port.free_ns:
        port.free_ns = start_ns
        port.carry = 0
    next_ns = port.free_ns + port.gap_ns
    if port.rate_bps != 0:
        total = (length_bytes + OVERHEAD_BYTES) * BITS_PER_BYTE * NS_PER_S + port.carry
        port.free_ns += total // port.rate_bps
        port.carry = total % port.rate_bps
    departs_ns = port.free_ns
    if next_ns > departs_ns:
        port.free_ns = next_ns
    unlock(reference(port.lock))
    return departs_ns


@kernel
def clear(port: OutPort, core: Core) -> None:
    """Drop every packet waiting at a port as `program_replaced`; its times continue."""
    lock(reference(port.lock))
    while port.ready != 0:
        port.program_replaced += 1
        give(core.packets[0], view(Packet, _pop(port)))
    unlock(reference(port.lock))


@kernel
def crossing_ns(port: OutPort) -> u64:
    """Return the next frame's crossing time on the port's cable; the caller holds `egress_lock`."""
    if port.jitter_ns == 0:
        return port.delay_ns
    port.chance += INCREMENT
    mixed = port.chance
    mixed = (mixed ^ mixed >> 30) * FIRST_FACTOR
    mixed = (mixed ^ mixed >> 27) * SECOND_FACTOR
    mixed ^= mixed >> 31
    return port.delay_ns - port.jitter_ns + mixed % (2 * port.jitter_ns + 1)


@kernel
def hold(port: OutPort, frame: Packet, arrives_ns: u64) -> None:
    """Put a frame on the port's cable, where it overtakes none; the caller holds `egress_lock`."""
    frame.enqueued_ns = arrives_ns
    frame.next = 0
    if port.in_flight == 0:
        port.flight_first = address(frame)
    else:
        last = view(Packet, port.flight_last)
        if last.enqueued_ns > arrives_ns:
            frame.enqueued_ns = last.enqueued_ns
        last.next = address(frame)
    port.flight_last = address(frame)
    port.in_flight += 1


@kernel(inline=True)
def next_arrival_ns(port: OutPort) -> u64:
    """Return when the next frame has crossed the cable, or NEVER; only a hint without `egress_lock`."""
    if load_relaxed(port.in_flight) == 0:
        return NEVER
    frame = load_relaxed(port.flight_first)
    if frame == 0:  # another worker is taking the last one right now
        return NEVER
    # Blocks stay mapped while the switch lives: a frame that has left is a wrong hint, nothing worse.
    return load_relaxed(view(Packet, frame).enqueued_ns)


@kernel
def arrived(port: OutPort, now_ns: u64) -> u64:
    """Take the next frame off the cable and return its address, 0 if none has arrived by now."""
    if port.in_flight == 0:
        return 0
    frame = view(Packet, port.flight_first)
    if frame.enqueued_ns > now_ns:
        return 0
    port.flight_first = frame.next
    port.in_flight -= 1
    return address(frame)


@kernel(inline=True)
def one_bit(position: u64) -> u64:
    """Return the number with only this bit set."""
    bit: u64 = 1
    return bit << position
