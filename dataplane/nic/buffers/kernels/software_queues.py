"""What a consumer does with its lanes: take packets, give them back, or copy them and be done; and sleep.

One thread at a time is a lane's consumer.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    as_u64,
    atomic_add,
    i64,
    kernel,
    load_acquire,
    offset,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import Bell, arm_bell, disarm_bell, sleep_on, strike
from dataplane.nic.buffers.kernels.buffers import LENT, gather, is_inside, put_back
from dataplane.nic.buffers.software_queue import Lane
from dataplane.nic.structures import Bucket, Buffer


@kernel(inline=True)
def has_packets(lane: Lane) -> bool:
    """Return whether `acquire` would find something."""
    ring = lane.packets[0]
    return load_acquire(ring.tail) != ring.head


@kernel
def acquire(lane: Lane, packets: Array[u64], limit: u32) -> u32:
    """Write the addresses of up to `limit` packets (each its first `Buffer`) that wait, in order; return how many.

    They are lent until `give_back`.
    """
    ring = lane.packets[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    count: u32 = 0
    while count < limit and head != tail:
        packet: u64 = ring.slots[head & ring.mask]
        view(Buffer, packet).state = LENT
        packets[count] = packet
        head += 1
        count += 1
    store_release(ring.head, head)
    return count


@kernel
def give_back(lane: Lane, packet: Buffer) -> bool:
    """Return a packet's buffers to its lane; False, and counted, for what is not lent, as when given back before.

    The same buffer may be lent anew by then: who keeps an address after giving it back cannot be told apart.
    """
    memory = lane.memory[0]
    if not is_inside(memory, packet) or packet.lane != address(lane) or packet.state != LENT:
        lane.refused += 1
        return False
    finish(lane, packet)
    return True


@kernel
def give_back_all(lane: Lane, packets: Array[u64], count: u32) -> u32:
    """Return packets to their lane; return how many were lent, the others are counted."""
    done: u32 = 0
    i: u32 = 0
    while i < count:
        if give_back(lane, view(Buffer, packets[i])):
            done += 1
        i += 1
    return done


@kernel(inline=True)
def finish(lane: Lane, packet: Buffer) -> None:
    """Give back a packet that a consumer had."""
    let_go(lane, packet)
    store_release(lane.given_back, lane.given_back + 1)


@kernel(inline=True)
def let_go(lane: Lane, packet: Buffer) -> None:
    """Let a packet's buffers go back to the driver thread, and then its flow to another consumer."""
    flow = view(Bucket, packet.bucket)
    put_back(lane.memory[0], packet)
    if address(flow) != 0:
        atomic_add(flow.done, 1)
    else:
        store_release(lane.loose_done, lane.loose_done + 1)


@kernel
def copy_out(  # noqa: PLR0917 - kernels have no keywords
    lane: Lane, rows: Array[u8], row_bytes: u64, lengths: Array[u32], times: Array[u64], limit: u32
) -> u32:
    """Copy up to `limit` waiting packets into rows, each with its whole length and time in ns; give them back.

    `times` may be null. A packet longer than a row is cut and counted; its length says so.
    """
    ring = lane.packets[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    count: u32 = 0
    while count < limit and head != tail:
        packet = view(Buffer, ring.slots[head & ring.mask])
        if gather(packet, offset(rows, as_u64(count) * row_bytes), row_bytes) < as_u64(packet.total):
            lane.cut += 1
        lengths[count] = packet.total
        if address(times) != 0:
            times[count] = packet.time_ns
        head += 1
        store_release(ring.head, head)
        finish(lane, packet)
        count += 1
    return count


@kernel
def copy_out_all(  # noqa: PLR0917 - kernels have no keywords
    lanes: Array[u64],
    lane_count: u32,
    rows: Array[u8],
    row_bytes: u64,
    lengths: Array[u32],
    times: Array[u64],
    limit: u32,
) -> u32:
    """Do as `copy_out` does with one lane after the other (addresses), until there are `limit` packets."""
    count: u32 = 0
    i: u32 = 0
    while i < lane_count and count < limit:
        done: u64 = as_u64(count)
        place: Array[u64] = times if address(times) == 0 else offset(times, done)
        lane = view(Lane, lanes[i])
        count += copy_out(lane, offset(rows, done * row_bytes), row_bytes, offset(lengths, done), place, limit - count)
        i += 1
    return count


@kernel
def discard(lane: Lane) -> u64:
    """Give back all that waits in a lane whose consumer has left, and count it; return how many packets."""
    ring = lane.packets[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    count: u64 = tail - head
    while head != tail:
        let_go(lane, view(Buffer, ring.slots[head & ring.mask]))
        head += 1
    lane.consumer_left += count
    store_release(ring.head, head)
    return count


@kernel
def any_waits(lanes: Array[u64], count: u32) -> bool:
    """Return whether any of the lanes (addresses) has packets."""
    i: u32 = 0
    while i < count:
        if has_packets(view(Lane, lanes[i])):
            return True
        i += 1
    return False


@kernel
def await_packets(bell: Bell, lanes: Array[u64], count: u32, timeout_ns: i64) -> bool:
    """Sleep until one of a consumer's lanes has packets; False after a signal or when the time has passed."""
    arm_bell(bell)
    if not any_waits(lanes, count):
        sleep_on(bell, timeout_ns)
    disarm_bell(bell)
    return any_waits(lanes, count)


@kernel
def watch(bell: Bell, lanes: Array[u64], count: u32) -> bool:
    """Arm the bell for who polls its eventfd; return whether packets are there already, which makes it readable."""
    arm_bell(bell)
    found: bool = any_waits(lanes, count)
    if found:
        strike(bell)
    return found
