"""Consumer side of the software queues: take packets, give them back, copy them out, and sleep.

One thread at a time is a software queue's consumer.
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
from dataplane.nic.buffers.software_queue import ReceiveQueue
from dataplane.nic.structures import Bucket, Buffer


@kernel(inline=True)
def has_packets(queue: ReceiveQueue) -> bool:
    """Return whether `acquire` would find something."""
    ring = queue.packets[0]
    return load_acquire(ring.tail) != ring.head


@kernel
def acquire(queue: ReceiveQueue, packets: Array[u64], limit: u32) -> u32:
    """Write the addresses of up to `limit` waiting packets (each its first `Buffer`), in order; return how many.

    They are lent until `give_back`.
    """
    ring = queue.packets[0]
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
def give_back(queue: ReceiveQueue, packet: Buffer) -> bool:
    """Return a packet's buffers to its queue; False, and counted, if it was not lent, e.g. when given back before.

    By then the same buffer may be lent again: use of an address after giving it back is not detected.
    """
    memory = queue.memory[0]
    if not is_inside(memory, packet) or packet.owner != address(queue) or packet.state != LENT:
        queue.refused += 1
        return False
    finish(queue, packet)
    return True


@kernel
def give_back_all(queue: ReceiveQueue, packets: Array[u64], count: u32) -> u32:
    """Return packets to their software queue; return how many were lent; the others are counted."""
    done: u32 = 0
    i: u32 = 0
    while i < count:
        if give_back(queue, view(Buffer, packets[i])):
            done += 1
        i += 1
    return done


@kernel(inline=True)
def finish(queue: ReceiveQueue, packet: Buffer) -> None:
    """Give back a packet that was lent to a consumer."""
    let_go(queue, packet)
    store_release(queue.given_back, queue.given_back + 1)


@kernel(inline=True)
def let_go(queue: ReceiveQueue, packet: Buffer) -> None:
    """Return a packet's buffers to the driver thread, then allow its flow to move to another consumer."""
    flow = view(Bucket, packet.bucket)
    put_back(queue.memory[0], packet)
    if address(flow) != 0:
        atomic_add(flow.done, 1)
    else:
        store_release(queue.loose_done, queue.loose_done + 1)


@kernel
def copy_out(  # noqa: PLR0917 - kernels have no keywords
    queue: ReceiveQueue, rows: Array[u8], row_bytes: u64, lengths: Array[u32], times: Array[u64], limit: u32
) -> u32:
    """Copy up to `limit` waiting packets into rows, each with its full length and time in ns; give them back.

    `times` may be null. A packet longer than a row is truncated and counted; its length shows that.
    """
    ring = queue.packets[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    count: u32 = 0
    while count < limit and head != tail:
        packet = view(Buffer, ring.slots[head & ring.mask])
        if gather(packet, offset(rows, as_u64(count) * row_bytes), row_bytes) < as_u64(packet.total):
            queue.cut += 1
        lengths[count] = packet.total
        if address(times) != 0:
            times[count] = packet.time_ns
        head += 1
        store_release(ring.head, head)
        finish(queue, packet)
        count += 1
    return count


@kernel
def copy_out_all(  # noqa: PLR0917 - kernels have no keywords
    queues: Array[u64],
    queue_count: u32,
    rows: Array[u8],
    row_bytes: u64,
    lengths: Array[u32],
    times: Array[u64],
    limit: u32,
) -> u32:
    """Like `copy_out`, over several software queues (addresses) in turn, until there are `limit` packets."""
    count: u32 = 0
    i: u32 = 0
    while i < queue_count and count < limit:
        done: u64 = as_u64(count)
        later_times: Array[u64] = times if address(times) == 0 else offset(times, done)
        queue = view(ReceiveQueue, queues[i])
        count += copy_out(
            queue, offset(rows, done * row_bytes), row_bytes, offset(lengths, done), later_times, limit - count
        )
        i += 1
    return count


@kernel
def discard(queue: ReceiveQueue) -> u64:
    """Give back everything waiting in a queue whose consumer has left, and count it; return how many packets."""
    ring = queue.packets[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    count: u64 = tail - head
    while head != tail:
        let_go(queue, view(Buffer, ring.slots[head & ring.mask]))
        head += 1
    queue.consumer_left += count
    store_release(ring.head, head)
    return count


@kernel
def any_waits(queues: Array[u64], count: u32) -> bool:
    """Return whether any of the software queues (addresses) has packets."""
    i: u32 = 0
    while i < count:
        if has_packets(view(ReceiveQueue, queues[i])):
            return True
        i += 1
    return False


@kernel
def await_packets(bell: Bell, queues: Array[u64], count: u32, timeout_ns: i64) -> bool:
    """Sleep until one of a consumer's software queues has packets; return False after a signal or timeout."""
    arm_bell(bell)
    if not any_waits(queues, count):
        sleep_on(bell, timeout_ns)
    disarm_bell(bell)
    return any_waits(queues, count)


@kernel
def watch(bell: Bell, queues: Array[u64], count: u32) -> bool:
    """Arm the bell for pollers of its eventfd; return whether packets are already there, which makes it readable."""
    arm_bell(bell)
    is_ready: bool = any_waits(queues, count)
    if is_ready:
        strike(bell)
    return is_ready
