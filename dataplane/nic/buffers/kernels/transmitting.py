"""Software transmit queues: a producer queues packets, the driver thread moves them to the device's slots.

A packet is complete once its element says so: it holds the element's position plus one, a value that no earlier packet
in the same slot has had. The buffers of a large packet all name the same element.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    as_u64,
    fence,
    kernel,
    load_acquire,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ring_if_waiting
from dataplane.nic.buffers.kernels.buffers import LENT, gather, put_back, scatter, take
from dataplane.nic.buffers.software_queue import ManagerTable, ManagerThread, SendQueue
from dataplane.nic.ports.kernels.dispatch import commit, flush, reserve
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.structures import Buffer

NOT_SENT = 0xFFFF_FFFF_FFFF_FFFF
"""Returned instead of a position if the packet did not enter the queue; counted."""
TAKEN, NO_ROOM, DROPPED = 0, 1, 2
"""Outcomes of offering a packet to the device."""


@kernel
def claim(sender: SendQueue, length: u32) -> Buffer:
    """Return buffers for a packet of `length` bytes that the producer fills before calling `complete`; null: none.

    One packet at a time: a claim that was not completed is returned again if its length matches, else given up.
    """
    if sender.claimed != 0:
        packet = view(Buffer, sender.claimed)
        if packet.total == length:
            return packet
        sender.claimed = 0
        reuse(sender, packet)
    if sender.tail - sender.head_seen > sender.mask:
        sender.head_seen = load_acquire(sender.settled)
        if sender.tail - sender.head_seen > sender.mask:
            sender.queue_full += 1
            return view(Buffer, 0)
    taken = take(sender.memory[0], length)
    if address(taken) == 0:
        sender.reserve_spent += 1
    sender.claimed = address(taken)
    return taken


@kernel(inline=False)
def reuse(sender: SendQueue, packet: Buffer) -> None:
    """Put a claimed packet's buffers back on the producer's own stacks."""
    segment = packet
    while address(segment) != 0:
        reserve_of = sender.memory[0].reserves[segment.size_class]
        following: u64 = segment.next
        segment.state = 0
        reserve_of.stack[reserve_of.count] = address(segment)
        reserve_of.count += 1
        segment = view(Buffer, following)


@kernel
def complete(sender: SendQueue) -> u64:
    """Append the claimed packet to the queue, publish it to the driver thread and wake it; return the position."""
    packet = view(Buffer, sender.claimed)
    sender.claimed = 0
    position: u64 = sender.tail
    element = sender.elements[position & sender.mask]
    element.first = address(packet)
    element.length = packet.total
    element.segments = packet.segments
    segment = packet
    segment.element = position
    while segment.next != 0:
        segment = view(Buffer, segment.next)
        segment.element = position
    element.last = address(segment)
    packet.state = LENT
    sender.tail_bytes += as_u64(packet.total)
    sender.tail = position + 1
    store_release(element.complete, position + 1)
    fence()
    ring_if_waiting(sender.driver_bell)
    return position


@kernel
def send_copy(sender: SendQueue, frame: Array[u8], length: u32) -> u64:
    """Copy a frame into the software queue; return its position, or NOT_SENT (counted) if there is no room."""
    packet = claim(sender, length)
    if address(packet) == 0:
        return NOT_SENT
    scatter(packet, frame)
    return complete(sender)


@kernel(inline=True)
def is_complete(sender: SendQueue) -> bool:
    """Return whether the next packet in line is fully written."""
    return load_acquire(sender.elements[sender.head & sender.mask].complete) == sender.head + 1


@kernel
def has_to_transmit(manager: ManagerThread) -> bool:
    """Return whether a packet is queued."""
    table = view(ManagerTable, load_acquire(manager.table))
    i: u32 = 0
    while i < table.sender_count:
        if is_complete(view(SendQueue, table.senders[i])):
            return True
        i += 1
    return False


@kernel
def transmit(manager: ManagerThread, queue: PortQueue, limit: u32) -> u32:
    """Move up to `limit` complete packets, one from each software queue in turn, to the device; return how many.

    Packets that the device has no room for stay queued. Always call it with the same queue for one manager. It also
    flushes the queue, and settles what the device has taken since.
    """
    table = view(ManagerTable, load_acquire(manager.table))
    if manager.on_device == 0:
        # Others may have sent through this queue.
        manager.frames_seen = queue.tx_frames
    taken: u32 = 0
    idle: u32 = 0
    while taken < limit and idle < table.sender_count:
        manager.turn += 1
        sender = view(SendQueue, table.senders[manager.turn % as_u64(table.sender_count)])
        if not is_complete(sender):
            idle += 1
            continue
        if is_unsettled_full(manager) or move(manager, queue, sender) == NO_ROOM:
            break
        taken += 1
        idle = 0
    flush(queue)
    settle(manager, queue)
    return taken


@kernel(inline=True)
def is_unsettled_full(manager: ManagerThread) -> bool:
    """Return whether no further packet can be in flight."""
    return manager.unsettled_tail - manager.unsettled_head > manager.unsettled_mask


@kernel
def move(manager: ManagerThread, queue: PortQueue, sender: SendQueue) -> u32:
    """Copy the software queue's next packet into a slot of the device and give its buffers back."""
    element = sender.elements[sender.head & sender.mask]
    packet = view(Buffer, element.first)
    fate: u32 = offer(manager, queue, sender, packet)
    if fate == NO_ROOM:
        return NO_ROOM
    put_back(sender.memory[0], packet)
    sender.head += 1
    entry: u64 = address(sender)
    if fate == DROPPED:
        entry |= 1
    else:
        sender.sent_bytes += as_u64(element.length)
    manager.unsettled[manager.unsettled_tail & manager.unsettled_mask] = entry
    manager.unsettled_tail += 1
    return fate


@kernel
def offer(manager: ManagerThread, queue: PortQueue, sender: SendQueue, packet: Buffer) -> u32:
    """Write the packet into a device slot if one is free; otherwise count the reason for its sender."""
    slot: Array[u8] = reserve(queue, packet.total)
    if address(slot) == 0:
        if packet.total > queue.transmit_room:
            sender.too_long += 1
            return DROPPED
        if queue.down != 0:
            sender.down += 1
            return DROPPED
        # The device counted a drop, but the packet stays in line.
        queue.tx_full -= 1
        return NO_ROOM
    gather(packet, slot, as_u64(packet.total))
    if commit(queue, packet.total):
        manager.on_device += 1
        return TAKEN
    if packet.total < queue.shortest_frame:
        sender.refused += 1
    else:
        sender.too_long += 1
    return DROPPED


@kernel
def settle(manager: ManagerThread, queue: PortQueue) -> None:
    """Complete the packets that are no longer pending in the device's queue, in order, and wake their waiters.

    Of a run of packets that the device has finished, those that it did not count as sent were the last ones.
    """
    pending: u64 = as_u64(queue.tx_pending)
    frames: u64 = queue.tx_frames - manager.frames_seen
    manager.frames_seen = queue.tx_frames
    if manager.unsettled_head == manager.unsettled_tail:
        return
    done: u64 = manager.on_device - pending if manager.on_device > pending else 0
    first: u64 = manager.unsettled_head
    while manager.unsettled_head != manager.unsettled_tail:
        entry: u64 = manager.unsettled[manager.unsettled_head & manager.unsettled_mask]
        sender = view(SendQueue, entry & 0xFFFF_FFFF_FFFF_FFFE)
        if (entry & 1) == 0:
            if done == 0:
                break
            done -= 1
            manager.on_device -= 1
            if frames > 0:
                frames -= 1
                sender.sent += 1
            else:
                sender.down += 1
        store_release(sender.settled, sender.settled + 1)
        manager.unsettled_head += 1
    wake_producers(manager, first)


@kernel
def wake_producers(manager: ManagerThread, first: u64) -> None:
    """Ring the bells of producers whose packets were settled, starting at a position."""
    if manager.unsettled_head == first:
        return
    fence()
    position: u64 = first
    while position != manager.unsettled_head:
        entry: u64 = manager.unsettled[position & manager.unsettled_mask]
        ring_if_waiting(view(SendQueue, entry & 0xFFFF_FFFF_FFFF_FFFE).bell)
        position += 1


@kernel
def abandon(sender: SendQueue) -> u64:
    """Drop and count everything queued by a producer that has left; return how many packets."""
    count: u64 = 0
    while is_complete(sender):
        put_back(sender.memory[0], view(Buffer, sender.elements[sender.head & sender.mask].first))
        sender.head += 1
        count += 1
    sender.producer_left += count
    return count
