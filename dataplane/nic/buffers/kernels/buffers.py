"""Buffers of a software queue: one thread takes them, the other returns them; packets are chains of buffers."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    array_at,
    as_u64,
    copy,
    kernel,
    load_acquire,
    offset,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.buffers.software_queue import Memory, Reserve
from dataplane.nic.structures import Buffer

FREE, QUEUED, LENT, SEGMENT = 0, 1, 2, 3
"""Values of a buffer's `state`; SEGMENT: not the first buffer of its packet."""
NO_CLASS = 0xFFFF_FFFF


@kernel
def refill(reserve: Reserve) -> None:
    """Put returned buffers on the stack of free ones; the most recently used ends up on top."""
    ring = reserve.returned[0]
    tail: u64 = load_acquire(ring.tail)
    head: u64 = ring.head
    while head != tail:
        reserve.stack[reserve.count] = ring.slots[head & ring.mask]
        reserve.count += 1
        head += 1
    store_release(ring.head, head)


@kernel
def refill_all(memory: Memory) -> None:
    """Put returned buffers of all sizes on the stacks of free ones."""
    i: u32 = 0
    while i < memory.classes:
        refill(memory.reserves[i])
        i += 1


@kernel(inline=True)
def is_spent(reserve: Reserve) -> bool:
    """Return whether no buffer is available, even after checking the returned ones."""
    if reserve.count == 0:
        refill(reserve)
    return reserve.count == 0


@kernel(inline=True)
def best_class(memory: Memory, length: u32) -> u32:
    """Return the smallest size that holds `length` bytes and is not spent, else the largest that is not spent."""
    best: u32 = NO_CLASS
    i: u32 = 0
    while i < memory.classes:
        reserve = memory.reserves[i]
        if not is_spent(reserve):
            best = i
            if reserve.capacity >= length:
                return best
        i += 1
    return best


@kernel
def holds(memory: Memory, length: u32) -> bool:
    """Return whether all available buffers together have room for that many bytes."""
    room: u64 = 0
    i: u32 = 0
    while i < memory.classes:
        reserve = memory.reserves[i]
        refill(reserve)
        room += reserve.count * as_u64(reserve.capacity)
        i += 1
    return room >= as_u64(length)


@kernel(inline=True)
def pop(reserve: Reserve) -> Buffer:
    """Take the buffer on top; there must be one."""
    reserve.count -= 1
    return view(Buffer, reserve.stack[reserve.count])


@kernel(inline=True)
def take(memory: Memory, length: u32) -> Buffer:
    """Return a packet of `length` bytes, in the smallest buffer that holds it or scattered over several; null if spent.

    Fills in the first buffer's `total` and `segments`, and `length`, `next` and `state` of all; writes no payload.
    """
    size_class: u32 = best_class(memory, length)
    if size_class == NO_CLASS:
        return view(Buffer, 0)
    if memory.reserves[size_class].capacity < length:
        return take_chain(memory, length)
    packet = pop(memory.reserves[size_class])
    packet.next = 0
    packet.length = length
    packet.total = length
    packet.segments = 1
    packet.state = QUEUED
    return packet


@kernel
def take_chain(memory: Memory, length: u32) -> Buffer:
    """Take as many buffers as `length` bytes need, or none."""
    if not holds(memory, length):
        return view(Buffer, 0)
    first = view(Buffer, 0)
    last = view(Buffer, 0)
    left: u32 = length
    count: u32 = 0
    while left > 0:
        segment = pop(memory.reserves[best_class(memory, left)])
        segment.length = segment.capacity if segment.capacity < left else left
        segment.next = 0
        segment.state = SEGMENT
        left -= segment.length
        count += 1
        if count == 1:
            first = segment
        else:
            last.next = address(segment)
        last = segment
    first.total = length
    first.segments = count
    first.state = QUEUED
    return first


@kernel(inline=True)
def scatter(packet: Buffer, frame: Array[u8]) -> None:
    """Copy a frame of `packet.total` bytes into the packet's buffers."""
    if packet.segments == 1:
        copy(array_at(u8, packet.data), frame, as_u64(packet.length))
    else:
        scatter_chain(packet, frame)


@kernel
def scatter_chain(packet: Buffer, frame: Array[u8]) -> None:
    """Copy a frame into several buffers, in order."""
    copied: u64 = 0
    segment = packet
    while address(segment) != 0:
        copy(array_at(u8, segment.data), offset(frame, copied), as_u64(segment.length))
        copied += as_u64(segment.length)
        segment = view(Buffer, segment.next)


@kernel
def gather(packet: Buffer, target: Array[u8], room: u64) -> u64:
    """Copy the packet's bytes, as many as fit, into contiguous memory; return how many."""
    copied: u64 = 0
    segment = packet
    while address(segment) != 0 and copied < room:
        length: u64 = min(as_u64(segment.length), room - copied)
        copy(offset(target, copied), array_at(u8, segment.data), length)
        copied += length
        segment = view(Buffer, segment.next)
    return copied


@kernel(inline=True)
def put_back(memory: Memory, packet: Buffer) -> None:
    """Return a packet's buffers to the thread that takes them; the caller checked that this is allowed."""
    segment = packet
    while address(segment) != 0:
        following: u64 = segment.next
        segment.state = FREE
        ring = memory.reserves[segment.size_class].returned[0]
        tail: u64 = ring.tail
        ring.slots[tail & ring.mask] = address(segment)
        store_release(ring.tail, tail + 1)
        segment = view(Buffer, following)


@kernel(inline=True)
def is_inside(memory: Memory, packet: Buffer) -> bool:
    """Return whether an address could be that of one of the memory's buffers."""
    return address(packet) - memory.start < memory.nbytes


@kernel
def free_buffers(memory: Memory, size_class: u32) -> u64:
    """Return how many buffers of a size are free; exact only while both threads are idle."""
    reserve = memory.reserves[size_class]
    ring = reserve.returned[0]
    head: u64 = load_acquire(ring.head)
    return reserve.count + load_acquire(ring.tail) - head


@kernel
def lay_out(  # noqa: PLR0917 - kernels have no keywords
    reserve: Reserve, start: u64, stride: u64, head_bytes: u64, queue: u64, size_class: u32
) -> None:
    """Create a reserve's buffers, one every `stride` bytes starting at an address, all of them available."""
    head: u64 = start + stride * as_u64(reserve.buffers)
    while reserve.count < as_u64(reserve.buffers):
        head -= stride
        buffer = view(Buffer, head)
        buffer.data = head + head_bytes
        buffer.capacity = reserve.capacity
        buffer.owner = queue
        buffer.size_class = size_class
        buffer.state = FREE
        reserve.stack[reserve.count] = head
        reserve.count += 1
