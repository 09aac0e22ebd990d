"""The packet manager in a driver thread: chooses a packet's consumer and copies it into that consumer's buffers."""

from __future__ import annotations

from dataplane.native import (
    Array,
    address,
    as_i64,
    as_u32,
    as_u64,
    fence,
    i64,
    kernel,
    load_acquire,
    store_release,
    u8,
    u32,
    u64,
    view,
)
from dataplane.native.doorbell import ring_if_waiting
from dataplane.nic.buffers.kernels.buffers import refill_all, scatter, take
from dataplane.nic.buffers.software_queue import NO_MEMBER, Group, ManagerTable, ManagerThread, ReceiveQueue
from dataplane.nic.manager.balance import Balance
from dataplane.nic.structures import Bucket, Buffer, Stamp, Verdict

MOST_TOUCHED = 256
"""Software queues that one burst can reach before their packets are published early."""
_BUCKET_BITS = 12
_SPREAD = 0x9E37_79B9_7F4A_7C15


@kernel
def distribute(manager: ManagerThread, verdict: Verdict, frame: Array[u8], length: u32, stamp: Stamp) -> bool:
    """Copy a frame into buffers of a consumer of `verdict.group`; False: dropped, and counted by name.

    The consumer sees it after the next `publish`, which must come in the same burst.
    """
    table = view(ManagerTable, load_acquire(manager.table))
    if verdict.group >= table.group_count or table.groups[verdict.group].count == 0:
        count_no_consumer(manager, table, verdict.group)
        return False
    group = table.groups[verdict.group]
    bucket = view(Bucket, 0)
    queue = view(ReceiveQueue, group.members[0].queue)
    if group.count > 1:
        bucket = group.state.buckets[bucket_of(verdict.flow_hash)]
        queue = view(ReceiveQueue, group.members[choose(group, bucket, verdict.flow_hash)].queue)
    if queue.put - queue.packets[0].head_seen >= queue.limit and not has_room(queue):
        queue.queue_full += 1
        return False
    if queue.touched == 0:
        touch(manager, queue)
    packet = take(queue.memory[0], length)
    if address(packet) == 0:
        queue.reserve_spent += 1
        return False
    scatter(packet, frame)
    describe(packet, verdict, stamp)
    packet.bucket = address(bucket)
    if address(bucket) != 0:
        bucket.sent += 1
    else:
        queue.loose += 1
    ring = queue.packets[0]
    ring.slots[queue.put & ring.mask] = address(packet)
    queue.put += 1
    queue.handed_out_bytes += as_u64(length)
    queue.segments += as_u64(packet.segments)
    return True


@kernel(inline=False)
def count_no_consumer(manager: ManagerThread, table: ManagerTable, group: u32) -> None:
    """Count a packet for a group that does not exist or has no consumer."""
    manager.no_consumer += 1
    if group < table.group_count:
        table.groups[group].state.no_consumer += 1


@kernel
def has_room(queue: ReceiveQueue) -> bool:
    """Return whether the consumer has made room since the driver thread last looked."""
    ring = queue.packets[0]
    ring.head_seen = load_acquire(ring.head)
    return queue.put - ring.head_seen < queue.limit


@kernel
def touch(manager: ManagerThread, queue: ReceiveQueue) -> None:
    """Start using a queue in this burst: mark it for publishing, collect what its consumer gave back."""
    refill_all(queue.memory[0])
    if manager.touched_count == MOST_TOUCHED:
        publish(manager)
    manager.touched[manager.touched_count] = address(queue)
    manager.touched_count += 1
    queue.touched = 1


@kernel(inline=True)
def describe(packet: Buffer, verdict: Verdict, stamp: Stamp) -> None:
    """Write the known metadata into the packet's head."""
    packet.flow_hash = verdict.flow_hash
    packet.time_ns = stamp.time_ns
    packet.stamp_kind = stamp.kind
    packet.queue = stamp.queue
    packet.mark = verdict.mark
    packet.rule = verdict.rule


@kernel
def publish(manager: ManagerThread) -> None:
    """Let consumers see this burst's packets, and wake those that sleep."""
    if manager.touched_count == 0:
        return
    i: u64 = 0
    while i < manager.touched_count:
        queue = view(ReceiveQueue, manager.touched[i])
        store_release(queue.packets[0].tail, queue.put)
        queue.touched = 0
        i += 1
    fence()
    i = 0
    while i < manager.touched_count:
        ring_if_waiting(view(ReceiveQueue, manager.touched[i]).bell)
        i += 1
    manager.touched_count = 0


@kernel(inline=True)
def bucket_of(flow_hash: u64) -> u64:
    """Return the bucket of a flow."""
    return (flow_hash * _SPREAD) >> (64 - _BUCKET_BITS)


@kernel(inline=True)
def choose(group: Group, bucket: Bucket, flow_hash: u64) -> u32:
    """Return the position of the member that gets the bucket's next packet.

    The bucket stays where it is while its packets are outstanding there, so that its flows stay in order.
    """
    wanted: u32 = hashed_place(group, flow_hash)
    if group.balance == Balance.FLOW_HASH and group.members[wanted].serial == bucket.member:
        return wanted
    position: u32 = place_of(group, bucket.member)
    if position != NO_MEMBER and load_acquire(bucket.done) != bucket.sent:
        return position
    wanted = place_to_begin(group, wanted)
    bucket.member = group.members[wanted].serial
    return wanted


@kernel(inline=True)
def hashed_place(group: Group, flow_hash: u64) -> u32:
    """Return the member that a bucket's hash selects."""
    return as_u32((bucket_of(flow_hash) * as_u64(group.count)) >> _BUCKET_BITS)


@kernel
def place_of(group: Group, serial: u64) -> u32:
    """Return a member's position in the group, or NO_MEMBER."""
    i: u32 = 0
    while i < group.count:
        if group.members[i].serial == serial:
            return i
        i += 1
    return NO_MEMBER


@kernel
def place_to_begin(group: Group, hashed: u32) -> u32:
    """Return the member for a bucket with no outstanding packets.

    A sole member got packets without buckets: as long as it holds some, any bucket may have packets there.
    """
    if group.anchor != NO_MEMBER and holds_loose(view(ReceiveQueue, group.members[group.anchor].queue)):
        return group.anchor
    if group.balance == Balance.ROUND_ROBIN:
        group.state.turn += 1
        return as_u32(group.state.turn % as_u64(group.count))
    if group.balance == Balance.LEAST_LOADED:
        return least_loaded(group)
    return hashed


@kernel(inline=True)
def holds_loose(queue: ReceiveQueue) -> bool:
    """Return whether packets without a bucket are outstanding."""
    return load_acquire(queue.loose_done) != queue.loose


@kernel
def least_loaded(group: Group) -> u32:
    """Return the member with the fewest packets outstanding; among equals the next in turn."""
    count: u64 = as_u64(group.count)
    group.state.turn += 1
    best: u32 = 0
    fewest: i64 = 0
    i: u64 = 0
    while i < count:
        position: u32 = as_u32((group.state.turn + i) % count)
        queue = view(ReceiveQueue, group.members[position].queue)
        # Packets discarded when a consumer leaves are not given back, but then it is no longer a member.
        outstanding: i64 = as_i64(queue.put - load_acquire(queue.given_back))
        if i == 0 or outstanding < fewest:
            best = position
            fewest = outstanding
        i += 1
    return best
