"""Receive rings of AF_PACKET sockets: slots (TPACKET_V2) and blocks (TPACKET_V3), read in place."""

from __future__ import annotations

from dataplane.native import (
    Array,
    array_at,
    as_u16,
    as_u32,
    as_u64,
    kernel,
    load_acquire,
    load_u32,
    load_u64,
    offset,
    sizeof,
    store_be16,
    store_release,
    store_u32,
    store_u64,
    u8,
    u16,
    u32,
    u64,
    view,
)
from dataplane.nic.layouts import (
    ETHERTYPE_VLAN,
    TP_CHECKSUM_NOT_READY,
    TP_KERNEL,
    TP_TPID_VALID,
    TP_USER,
    TP_VLAN_VALID,
    VLAN_BYTES,
    PacketV2Header,
    PacketV3Block,
    PacketV3Header,
)
from dataplane.nic.ports.kernels.slots import advance
from dataplane.nic.ports.kernels.timestamps import stamp_packet
from dataplane.nic.ports.queue import PacketQueue


@kernel
def receive_v2(queue: PacketQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Borrow up to `limit` frames; a slot stays ours until it is released, so the ring is walked at most once."""
    count: u32 = 0
    nbytes: u64 = 0
    while count < limit and queue.rx_borrowed < queue.rx[0].slots:
        slot: u64 = queue.rx_cursor[0].slot
        header = view(PacketV2Header, slot)
        status = load_acquire(header.status)
        if (status & TP_USER) == 0:
            break
        advance(queue.rx[0], queue.rx_cursor[0])
        queue.rx_borrowed += 1
        captured = header.captured
        if captured < header.length or as_u32(header.mac) + captured > queue.rx[0].slot_bytes:
            queue.rx_too_long += 1
            continue
        if captured < queue.shortest_frame:
            queue.rx_too_short += 1
            continue
        frame: u64 = slot + as_u64(header.mac)
        if (status & (TP_VLAN_VALID | TP_CHECKSUM_NOT_READY)) != 0:
            if (status & TP_CHECKSUM_NOT_READY) != 0:
                queue.checksum_not_ready += 1
            if (status & TP_VLAN_VALID) != 0:
                frame = restore_tag(frame, status, header.vlan_tci, header.vlan_tpid)
                captured += VLAN_BYTES
        frames[count] = frame
        lengths[count] = captured
        stamp_packet(queue, count, status, header.seconds, header.nanoseconds)
        nbytes += as_u64(captured)
        count += 1
    if count > 0:
        queue.down = 0
    queue.rx_frames += as_u64(count)
    queue.rx_bytes += nbytes
    return count


@kernel
def release_v2(queue: PacketQueue) -> None:
    """Give every borrowed slot back to the kernel."""
    while queue.rx_borrowed > 0:
        store_release(view(PacketV2Header, queue.rx_released[0].slot).status, TP_KERNEL)
        advance(queue.rx[0], queue.rx_released[0])
        queue.rx_borrowed -= 1


@kernel(inline=True)
def is_readable_v2(queue: PacketQueue) -> bool:
    """Return whether the next slot is ours."""
    header = view(PacketV2Header, queue.rx_cursor[0].slot)
    return queue.rx_borrowed < queue.rx[0].slots and (load_acquire(header.status) & TP_USER) != 0


@kernel
def receive_v3(queue: PacketQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Borrow up to `limit` frames of the blocks that the kernel has closed."""
    count: u32 = 0
    nbytes: u64 = 0
    while count < limit:
        if queue.rx_left == 0:
            if not open_block(queue):
                break
            continue
        header = view(PacketV3Header, queue.rx_next)
        packet: u64 = queue.rx_next
        end: u64 = block_end(queue)
        queue.rx_left -= 1
        queue.rx_next = packet + as_u64(header.next_offset)
        if queue.rx_left > 0 and (header.next_offset == 0 or queue.rx_next + sizeof(PacketV3Header) > end):
            queue.rx_left = 0
        captured = header.captured
        frame: u64 = packet + as_u64(header.mac)
        if captured < header.length or frame + as_u64(captured) > end:
            queue.rx_too_long += 1
            continue
        if captured < queue.shortest_frame:
            queue.rx_too_short += 1
            continue
        status = header.status
        if (status & TP_CHECKSUM_NOT_READY) != 0:
            queue.checksum_not_ready += 1
        if (status & TP_VLAN_VALID) != 0:
            frame = restore_tag(frame, status, as_u16(header.vlan_tci), header.vlan_tpid)
            captured += VLAN_BYTES
        frames[count] = frame
        lengths[count] = captured
        stamp_packet(queue, count, status, header.seconds, header.nanoseconds)
        nbytes += as_u64(captured)
        count += 1
    if count > 0:
        queue.down = 0
    queue.rx_frames += as_u64(count)
    queue.rx_bytes += nbytes
    return count


@kernel
def open_block(queue: PacketQueue) -> bool:
    """Step to the next block; return whether the kernel has closed it, which makes it ours."""
    if queue.rx_borrowed == queue.rx[0].slots:
        return False
    start: u64 = queue.rx_cursor[0].slot
    block = view(PacketV3Block, start)
    if (load_acquire(block.status) & TP_USER) == 0:
        return False
    advance(queue.rx[0], queue.rx_cursor[0])
    queue.rx_borrowed += 1
    if as_u64(block.first_offset) + sizeof(PacketV3Header) <= as_u64(queue.rx[0].slot_bytes):
        queue.rx_left = block.frames
        queue.rx_next = start + as_u64(block.first_offset)
    return True


@kernel(inline=True)
def block_end(queue: PacketQueue) -> u64:
    """Return the end of the block with the next frame: the one before the cursor."""
    next_block: u64 = queue.rx_cursor[0].slot
    return queue.rx[0].end if next_block == queue.rx[0].start else next_block


@kernel
def release_v3(queue: PacketQueue) -> None:
    """Release every borrowed block except one with unread frames."""
    kept: u32 = 1 if queue.rx_left > 0 else 0
    while queue.rx_borrowed > kept:
        store_release(view(PacketV3Block, queue.rx_released[0].slot).status, TP_KERNEL)
        advance(queue.rx[0], queue.rx_released[0])
        queue.rx_borrowed -= 1


@kernel(inline=True)
def is_readable_v3(queue: PacketQueue) -> bool:
    """Return whether a block has frames left, or the next block is ours."""
    if queue.rx_left > 0:
        return True
    block = view(PacketV3Block, queue.rx_cursor[0].slot)
    return queue.rx_borrowed < queue.rx[0].slots and (load_acquire(block.status) & TP_USER) != 0


@kernel
def restore_tag(frame: u64, status: u32, tci: u16, tpid: u16) -> u64:
    """Restore the tag that the kernel took out after the addresses, which move 4 bytes down; return the new start.

    The kernel leaves 14 bytes or more between its own headers and the frame.
    """
    start: u64 = frame - VLAN_BYTES
    old: Array[u8] = array_at(u8, frame)
    new: Array[u8] = array_at(u8, start)
    destination: u64 = load_u64(old, 0)
    source: u32 = load_u32(old, 8)
    store_u64(new, 0, destination)
    store_u32(new, 8, source)
    ethertype: u16 = ETHERTYPE_VLAN
    if (status & TP_TPID_VALID) != 0:
        ethertype = tpid
    store_be16(offset(new, 12), 0, ethertype)
    store_be16(offset(new, 14), 0, tci)
    return start
