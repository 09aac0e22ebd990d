"""Cables in memory: a ring each way; one thread puts frames in, another takes them out; neither waits for the other."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    as_u64,
    exchange,
    fence,
    kernel,
    load_acquire,
    offset,
    stack_array,
    store_release,
    u8,
    u32,
    u64,
)
from dataplane.native.doorbell import read, write
from dataplane.nic.ports.kernels.counting import count_no_room, may_send
from dataplane.nic.ports.kernels.timestamps import stamp_burst
from dataplane.nic.ports.queue import FrameRing, MemoryQueue

SLOT_HEAD_BYTES = 16
"""Head of a slot before the frame: its length, and padding that keeps the frame aligned."""


@kernel(inline=True)
def memory_slot(ring: FrameRing, position: u64) -> Array[u8]:
    """Return where a slot begins."""
    return offset(ring.slots, (position & ring.mask) * ring.stride)


@kernel
def receive_memory(queue: MemoryQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Borrow up to `limit` frames."""
    ring = queue.incoming
    tail: u64 = load_acquire(ring.tail)
    count: u32 = 0
    nbytes: u64 = 0
    while count < limit and queue.rx_position != tail:
        slot: Array[u8] = memory_slot(ring, queue.rx_position)
        length: u32 = array_at(u32, address(slot))[0]
        frames[count] = address(slot) + SLOT_HEAD_BYTES
        lengths[count] = length
        nbytes += as_u64(length)
        queue.rx_position += 1
        count += 1
    stamp_burst(queue, count)
    queue.rx_frames += as_u64(count)
    queue.rx_bytes += nbytes
    return count


@kernel(inline=True)
def release_memory(queue: MemoryQueue) -> None:
    """Give the borrowed slots back to the sender."""
    store_release(queue.incoming.head, queue.rx_position)


@kernel(inline=True)
def is_readable_memory(queue: MemoryQueue) -> bool:
    """Return whether the sender has put a frame in."""
    return load_acquire(queue.incoming.tail) != queue.rx_position


@kernel(inline=True)
def reserve_memory(queue: MemoryQueue, length: u32) -> Array[u8]:
    """Return the next slot, or null (counted) if the receiver has not given it back, or has closed its end."""
    ring = queue.outgoing
    queue.down = load_acquire(ring.closed)
    full: bool = queue.tx_position - load_acquire(ring.head) > ring.mask
    if length > queue.transmit_room or queue.down != 0 or full:
        count_no_room(queue, length)
        return array_at(u8, 0)
    return offset(memory_slot(ring, queue.tx_position), SLOT_HEAD_BYTES)


@kernel(inline=True)
def commit_memory(queue: MemoryQueue, length: u32) -> bool:
    """Queue the reserved slot; the receiver sees it after the next flush."""
    slot: Array[u8] = memory_slot(queue.outgoing, queue.tx_position)
    if not may_send(queue, offset(slot, SLOT_HEAD_BYTES), length):
        return False
    array_at(u32, address(slot))[0] = length
    queue.tx_position += 1
    queue.tx_pending += 1
    queue.tx_frames += 1
    queue.tx_bytes += as_u64(length)
    return True


@kernel
def flush_memory(queue: MemoryQueue) -> u32:
    """Show the receiver the committed frames, and wake it if it waits; return how many frames."""
    taken: u32 = queue.tx_pending
    if taken == 0:
        return 0
    queue.tx_pending = 0
    ring = queue.outgoing
    store_release(ring.tail, queue.tx_position)
    fence()
    if load_acquire(ring.waiting) != 0 and exchange(ring.waiting, 0) != 0:
        increment = stack_array(u64, 1)
        increment[0] = 1
        write(ring.event_fd, increment, 8)
    return taken


@kernel
def arm(queue: MemoryQueue) -> bool:
    """Request a wake-up through the eventfd on new frames; return False, the eventfd readable, if some are there."""
    ring = queue.incoming
    count = stack_array(u64, 1)
    if load_acquire(ring.waiting) == 0:
        read(ring.event_fd, count, 8)
        store_release(ring.waiting, 1)
        fence()
    if not is_readable_memory(queue):
        return True
    # They may have come before the sender saw the waiting reader; a reader that leaves some must come back for them.
    if exchange(ring.waiting, 0) != 0:
        count[0] = 1
        write(ring.event_fd, count, 8)
    return False
