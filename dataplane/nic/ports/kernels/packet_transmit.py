"""Transmit rings of AF_PACKET sockets: frames are written into slots, one send(2) hands over all that are ready.

The socket has PACKET_LOSS set: the kernel skips a slot that it cannot send. send(2) returns how many bytes it took, so
a difference reveals a skip; a slot of length 0 is one that we made it skip.
"""

from __future__ import annotations

from dataplane.linux import EMSGSIZE, ENOBUFS, MSG_DONTWAIT
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u64,
    i32,
    i64,
    kernel,
    load_acquire,
    stack_array,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.layouts import TP_AVAILABLE, TP_SEND_REQUEST
from dataplane.nic.ports.kernels.counting import count_no_room, longest, may_send, means_down, refresh_mtu
from dataplane.nic.ports.kernels.segment_transmit import commit_segment, flush_segments, reserve_segment
from dataplane.nic.ports.kernels.slots import advance
from dataplane.nic.ports.kernels.system import last_error, send
from dataplane.nic.ports.queue import Cursor, PacketQueue

MOST_KICKS = 8
"""Number of retries in one flush after the device has dropped a frame."""


@kernel(inline=True)
def slot_status(queue: PacketQueue, slot: u64) -> Array[u32]:
    """Return the slot's status word."""
    return array_at(u32, slot + as_u64(queue.tx_status_offset))


@kernel(inline=True)
def slot_length(queue: PacketQueue, slot: u64) -> Array[u32]:
    """Return the slot's length word."""
    return array_at(u32, slot + as_u64(queue.tx_length_offset))


@kernel(inline=True)
def slot_data(queue: PacketQueue, slot: u64) -> Array[u8]:
    """Return the start of the slot's frame."""
    return array_at(u8, slot + as_u64(queue.tx_data_offset))


@kernel(inline=True)
def reserve_packet(queue: PacketQueue, length: u32) -> Array[u8]:
    """Return the data of the next slot, or null (counted) if there is none or it is too small."""
    if address(queue.segments) != 0:
        return reserve_segment(queue, length)
    if length > queue.transmit_room or not has_room(queue):
        count_no_room(queue, length)
        return array_at(u8, 0)
    return slot_data(queue, queue.tx_cursor[0].slot)


@kernel(inline=True)
def has_room(queue: PacketQueue) -> bool:
    """Return whether the next slot is free, if need be after asking the kernel to continue."""
    slot: u64 = queue.tx_cursor[0].slot
    if load_acquire(slot_status(queue, slot)[0]) == TP_AVAILABLE:
        return True
    flush_packet(queue)
    return load_acquire(slot_status(queue, slot)[0]) == TP_AVAILABLE


@kernel(inline=True)
def commit_packet(queue: PacketQueue, length: u32) -> bool:
    """Mark the reserved slot ready to be sent."""
    if address(queue.segments) != 0:
        return commit_segment(queue, length)
    slot: u64 = queue.tx_cursor[0].slot
    if not may_send(queue, slot_data(queue, slot), length):
        return False
    slot_length(queue, slot)[0] = length
    store_release(slot_status(queue, slot)[0], TP_SEND_REQUEST)
    advance(queue.tx[0], queue.tx_cursor[0])
    queue.tx_pending += 1
    queue.tx_pending_bytes += as_u64(length)
    return True


@kernel
def flush_packet(queue: PacketQueue) -> u32:
    """Ask the kernel to send ready frames; return how many it took."""
    if address(queue.segments) != 0:
        return flush_segments(queue)
    taken: u32 = 0
    kicks: u32 = 0
    stale: bool = True
    while queue.tx_pending + queue.tx_voided > 0 and kicks < MOST_KICKS:
        kicks += 1
        sent: i64 = send(queue.fd, array_at(u8, 0), 0, MSG_DONTWAIT)
        if sent == as_i64(queue.tx_pending_bytes):
            queue.down = 0
            return taken + take_all(queue)
        error: i32 = last_error() if sent < 0 else 0
        taken += take_some(queue, sent)
        if error == 0:
            queue.down = 0
            break
        if means_down(error) and stale:
            # A link that went down and came back leaves its error on the socket, for the first call to find.
            stale = False
            continue
        if means_down(error):
            queue.down = 1
            queue.tx_down += as_u64(void_pending(queue, queue.tx_pending))
            break
        if error == ENOBUFS:
            queue.tx_full += as_u64(void_pending(queue, 1))
        elif error == EMSGSIZE:
            queue.tx_too_long += as_u64(void_pending(queue, 1))
        else:
            break
    return taken


@kernel(inline=True)
def take_all(queue: PacketQueue) -> u32:
    """Count all pending frames as sent."""
    taken: u32 = queue.tx_pending
    queue.tx_frames += as_u64(taken)
    queue.tx_bytes += queue.tx_pending_bytes
    queue.tx_pending = 0
    queue.tx_pending_bytes = 0
    queue.tx_voided = 0
    queue.tx_unsent[0].slot = queue.tx_cursor[0].slot
    queue.tx_unsent[0].left = queue.tx_cursor[0].left
    return taken


@kernel
def take_some(queue: PacketQueue, sent: i64) -> u32:
    """Count the frames that the kernel took off the ring, and separately those it skipped; return how many it sent."""
    first: u64 = queue.tx_unsent[0].slot
    first_left: u32 = queue.tx_unsent[0].left
    slots: u32 = 0
    taken: u32 = 0
    nbytes: u64 = 0
    left: u32 = queue.tx_pending + queue.tx_voided
    while slots < left and load_acquire(slot_status(queue, queue.tx_unsent[0].slot)[0]) != TP_SEND_REQUEST:
        length: u32 = slot_length(queue, queue.tx_unsent[0].slot)[0]
        if length > 0:
            taken += 1
            nbytes += as_u64(length)
        advance(queue.tx[0], queue.tx_unsent[0])
        slots += 1
    queue.tx_pending -= taken
    queue.tx_voided -= slots - taken
    queue.tx_pending_bytes -= nbytes
    if sent >= 0 and nbytes > as_u64(sent):
        taken -= count_stepped_over(queue, first, first_left, slots)
        nbytes = as_u64(sent)
    queue.tx_frames += as_u64(taken)
    queue.tx_bytes += nbytes
    return taken


@kernel
def count_stepped_over(queue: PacketQueue, first: u64, left: u32, slots: u32) -> u32:
    """Count the frames in that many slots that exceed the device's MTU, which must have changed; return the count."""
    refresh_mtu(queue)
    lost: u32 = 0
    cursor = view(Cursor, address(stack_array(u64, 2)))
    cursor.slot = first
    cursor.left = left
    walked: u32 = 0
    while walked < slots:
        if slot_length(queue, cursor.slot)[0] > longest(queue, slot_data(queue, cursor.slot)):
            lost += 1
        advance(queue.tx[0], cursor)
        walked += 1
    queue.tx_too_long += as_u64(lost)
    return lost


@kernel
def void_pending(queue: PacketQueue, limit: u32) -> u32:
    """Make the kernel skip the first `limit` pending frames when it continues; return how many there were."""
    voided: u32 = 0
    cursor = view(Cursor, address(stack_array(u64, 2)))
    cursor.slot = queue.tx_unsent[0].slot
    cursor.left = queue.tx_unsent[0].left
    while voided < limit and queue.tx_pending > 0:
        length: Array[u32] = slot_length(queue, cursor.slot)
        if length[0] > 0:
            queue.tx_pending_bytes -= as_u64(length[0])
            queue.tx_pending -= 1
            queue.tx_voided += 1
            length[0] = 0
            voided += 1
        advance(queue.tx[0], cursor)
    return voided
