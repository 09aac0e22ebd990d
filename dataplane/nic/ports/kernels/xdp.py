"""AF_XDP sockets: four rings, and memory that frames are received into and sent from (kernel Documentation, af_xdp)."""

from __future__ import annotations

from dataplane.linux import EBUSY, MSG_DONTWAIT
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u64,
    copy,
    i32,
    kernel,
    load_acquire,
    offset,
    sizeof,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.nic.layouts import XDP_CONTINUES, XDP_NEED_WAKEUP, XdpDescriptor
from dataplane.nic.ports.kernels.counting import count_no_room, may_send, means_down
from dataplane.nic.ports.kernels.system import last_error, recv, send
from dataplane.nic.ports.kernels.timestamps import stamp_burst
from dataplane.nic.ports.queue import XdpQueue, XdpRing

KERNEL_BATCH = 32
"""Frames that one send(2) takes at most (TX_BATCH_SIZE of net/xdp/xsk.c)."""
NOWHERE = 0xFFFF_FFFF_FFFF_FFFF
"""An address outside of the memory: the kernel skips such a descriptor."""


@kernel(inline=True)
def descriptor_at(ring: XdpRing, position: u32) -> XdpDescriptor:
    """Return the descriptor of a position in a receive or transmit ring."""
    return view(XdpDescriptor, ring.entries + as_u64(position & ring.mask) * sizeof(XdpDescriptor))


@kernel(inline=True)
def address_at(ring: XdpRing, position: u32) -> Array[u64]:
    """Return the entry of a position in a fill or completion ring."""
    return array_at(u64, ring.entries + as_u64(position & ring.mask) * 8)


@kernel
def receive_xdp(queue: XdpQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Borrow up to `limit` frames; those that arrived in several chunks are assembled first."""
    count: u32 = 0
    nbytes: u64 = 0
    produced: u32 = load_acquire(queue.rx.producer[0])
    if queue.busy_poll != 0 and produced == queue.rx_position:
        recv(queue.fd, array_at(u8, 0), 0, MSG_DONTWAIT)
        produced = load_acquire(queue.rx.producer[0])
    while count < limit and queue.rx_position != produced:
        piece = descriptor_at(queue.rx, queue.rx_position)
        length: u32 = piece.length
        if (piece.options & XDP_CONTINUES) != 0:
            length = gather(queue, produced)
            if length == NO_GATHER:
                break
            if length == 0:
                continue
            frames[count] = address(queue.gather) + as_u64(queue.gather_used - 1) * as_u64(queue.gather_bytes)
        else:
            queue.rx_position += 1
            if not is_inside(queue, piece.addr, length):
                queue.rx_too_long += 1
                continue
            if length < queue.shortest_frame:
                queue.rx_too_short += 1
                continue
            frames[count] = address(queue.area) + piece.addr
        lengths[count] = length
        nbytes += as_u64(length)
        count += 1
    if count > 0:
        queue.down = 0
    stamp_burst(queue, count)
    queue.rx_frames += as_u64(count)
    queue.rx_bytes += nbytes
    return count


NO_GATHER = 0xFFFF_FFFF
"""The frame is incomplete, or there is nowhere to put it before the next release."""


@kernel
def gather(queue: XdpQueue, produced: u32) -> u32:
    """Copy a frame of several chunks into a buffer; return its length, 0 if it was too long, or NO_GATHER."""
    last: u32 = queue.rx_position
    while last != produced and (descriptor_at(queue.rx, last).options & XDP_CONTINUES) != 0:
        last += 1
    if last == produced or queue.gather_used == queue.gather_slots:
        return NO_GATHER
    target: Array[u8] = offset(queue.gather, as_u64(queue.gather_used) * as_u64(queue.gather_bytes))
    length: u32 = 0
    fits: bool = True
    while queue.rx_position != last + 1:
        piece = descriptor_at(queue.rx, queue.rx_position)
        fits = fits and is_inside(queue, piece.addr, piece.length) and piece.length <= queue.gather_bytes - length
        if fits:
            copy(offset(target, as_u64(length)), offset(queue.area, piece.addr), as_u64(piece.length))
            length += piece.length
        queue.rx_position += 1
    if not fits:
        queue.rx_too_long += 1
        return 0
    queue.gather_used += 1
    return length


@kernel(inline=True)
def is_inside(queue: XdpQueue, addr: u64, length: u32) -> bool:
    """Return whether a piece lies in the socket's memory."""
    return addr < queue.area_bytes and as_u64(length) <= queue.area_bytes - addr


@kernel
def release_xdp(queue: XdpQueue) -> None:
    """Give the chunks of all borrowed frames back to the kernel to receive into."""
    queue.gather_used = 0
    if queue.rx_released == queue.rx_position:
        return
    chunk: u64 = 0 - as_u64(queue.chunk_bytes)
    while queue.rx_released != queue.rx_position:
        piece = descriptor_at(queue.rx, queue.rx_released)
        address_at(queue.fill, queue.fill_position)[0] = piece.addr & chunk
        queue.fill_position += 1
        queue.rx_released += 1
    store_release(queue.fill.producer[0], queue.fill_position)
    store_release(queue.rx.consumer[0], queue.rx_released)
    if (load_acquire(queue.fill.flags[0]) & XDP_NEED_WAKEUP) != 0:
        recv(queue.fd, array_at(u8, 0), 0, MSG_DONTWAIT)


@kernel(inline=True)
def is_readable_xdp(queue: XdpQueue) -> bool:
    """Return whether the kernel has put a frame into the receive ring."""
    return load_acquire(queue.rx.producer[0]) != queue.rx_position


@kernel(inline=True)
def reserve_xdp(queue: XdpQueue, length: u32) -> Array[u8]:
    """Return a free slot, or null (counted) if there is none or it is too small."""
    if queue.free_count == 0:
        flush_xdp(queue)
    if length > queue.transmit_room or queue.free_count == 0:
        count_no_room(queue, length)
        return array_at(u8, 0)
    return offset(queue.area, queue.free_slots[queue.free_count - 1])


@kernel(inline=True)
def commit_xdp(queue: XdpQueue, length: u32) -> bool:
    """Describe the reserved slot in the transmit ring, in pieces no longer than a chunk."""
    addr: u64 = queue.free_slots[queue.free_count - 1]
    if not may_send(queue, offset(queue.area, addr), length):
        return False
    queue.free_count -= 1
    left: u32 = length
    while left > 0:
        piece = descriptor_at(queue.tx, queue.tx_position)
        piece.addr = addr
        piece.length = left
        piece.options = 0
        if left > queue.chunk_bytes:
            piece.length = queue.chunk_bytes
            piece.options = XDP_CONTINUES
        left -= piece.length
        addr += as_u64(piece.length)
        queue.tx_position += 1
    queue.tx_pending += 1
    return True


@kernel
def flush_xdp(queue: XdpQueue) -> u32:
    """Hand the described frames over, and reclaim the slots of those sent; return how many were taken."""
    taken: u32 = 0
    if queue.tx_settled != queue.tx_position:
        store_release(queue.tx.producer[0], queue.tx_position)
        taken = kick(queue)
    reclaim(queue)
    return taken


@kernel
def kick(queue: XdpQueue) -> u32:
    """Wake the kernel's sender as often as its batch size requires; return how many frames it took."""
    taken: u32 = 0
    kicks: u32 = (queue.tx_position - queue.tx_settled) // KERNEL_BATCH + 2
    while queue.tx_settled != queue.tx_position and kicks > 0:
        kicks -= 1
        error: i32 = 0
        if (load_acquire(queue.tx.flags[0]) & XDP_NEED_WAKEUP) != 0 and send(
            queue.fd, array_at(u8, 0), 0, MSG_DONTWAIT
        ) < 0:
            error = last_error()
        settled: u32 = settle(queue)
        taken += settled
        if error == 0:
            queue.down = 0
        elif means_down(error):
            queue.down = 1
            void_unsent(queue)
            break
        elif error == EBUSY and settled > 0:
            # The device refused the last one: it is gone (xsk_generic_xmit).
            queue.tx_frames -= 1
            queue.tx_refused += 1
            taken -= 1
        if settled == 0:
            break
    return taken


@kernel
def settle(queue: XdpQueue) -> u32:
    """Count the frames whose descriptors the kernel has consumed."""
    consumed: u32 = load_acquire(queue.tx.consumer[0])
    frames: u32 = 0
    nbytes: u64 = 0
    while queue.tx_settled != consumed:
        piece = descriptor_at(queue.tx, queue.tx_settled)
        if piece.addr != NOWHERE:
            nbytes += as_u64(piece.length)
            if (piece.options & XDP_CONTINUES) == 0:
                frames += 1
        queue.tx_settled += 1
    queue.tx_pending -= frames
    queue.tx_frames += as_u64(frames)
    queue.tx_bytes += nbytes
    return frames


@kernel
def void_unsent(queue: XdpQueue) -> None:
    """Make the kernel skip what it has not taken; count it, and free the slots, which it never saw."""
    position: u32 = queue.tx_settled
    while position != queue.tx_position:
        piece = descriptor_at(queue.tx, position)
        if piece.addr != NOWHERE:
            free_slot(queue, piece.addr)
            if (piece.options & XDP_CONTINUES) == 0:
                queue.tx_down += 1
                queue.tx_pending -= 1
        piece.addr = NOWHERE
        piece.options = 0
        position += 1


@kernel
def reclaim(queue: XdpQueue) -> None:
    """Free the slots of the frames that have left."""
    produced: u32 = load_acquire(queue.completion.producer[0])
    position: u32 = queue.completion.consumer[0]
    if position == produced:
        return
    while position != produced:
        free_slot(queue, address_at(queue.completion, position)[0])
        position += 1
    store_release(queue.completion.consumer[0], position)


@kernel(inline=True)
def free_slot(queue: XdpQueue, addr: u64) -> None:
    """Put a slot back on the stack; of a frame's pieces only the first is at a slot's beginning."""
    if addr % as_u64(queue.slot_bytes) == 0:
        queue.free_slots[queue.free_count] = addr
        queue.free_count += 1
