"""The common interface of all kinds of queue, called by a forwarding loop."""

from __future__ import annotations

from dataplane.native import Array, address, kernel, u8, u32, u64, view
from dataplane.nic.ports.kernels.dpdk import (
    commit_dpdk,
    flush_dpdk,
    is_readable_dpdk,
    receive_dpdk,
    release_dpdk,
    reserve_dpdk,
)
from dataplane.nic.ports.kernels.memory import (
    commit_memory,
    flush_memory,
    is_readable_memory,
    receive_memory,
    release_memory,
    reserve_memory,
)
from dataplane.nic.ports.kernels.messages import (
    commit_messages,
    flush_messages,
    is_readable_messages,
    receive_messages,
    release_messages,
    reserve_messages,
)
from dataplane.nic.ports.kernels.packet_receive import (
    is_readable_v2,
    is_readable_v3,
    receive_v2,
    receive_v3,
    release_v2,
    release_v3,
)
from dataplane.nic.ports.kernels.packet_transmit import commit_packet, flush_packet, reserve_packet
from dataplane.nic.ports.kernels.xdp import (
    commit_xdp,
    flush_xdp,
    is_readable_xdp,
    receive_xdp,
    release_xdp,
    reserve_xdp,
)
from dataplane.nic.ports.queue import (
    DpdkQueue,
    MemoryQueue,
    MessageQueue,
    PacketQueue,
    PortKind,
    PortQueue,
    XdpQueue,
)


@kernel
def receive(queue: PortQueue, frames: Array[u64], lengths: Array[u32], limit: u32) -> u32:
    """Write the addresses and lengths of up to `limit` frames that have arrived; return how many.

    The frames are borrowed in place, VLAN tags included, and may be changed, until `release`.
    """
    if queue.kind == PortKind.PACKET_V2:
        return receive_v2(view(PacketQueue, address(queue)), frames, lengths, limit)
    if queue.kind == PortKind.PACKET_V3:
        return receive_v3(view(PacketQueue, address(queue)), frames, lengths, limit)
    if queue.kind == PortKind.XDP:
        return receive_xdp(view(XdpQueue, address(queue)), frames, lengths, limit)
    if queue.kind == PortKind.MEMORY:
        return receive_memory(view(MemoryQueue, address(queue)), frames, lengths, limit)
    if queue.kind == PortKind.DPDK:
        return receive_dpdk(view(DpdkQueue, address(queue)), frames, lengths, limit)
    return receive_messages(view(MessageQueue, address(queue)), frames, lengths, limit)


@kernel
def release(queue: PortQueue) -> None:
    """Give back all frames received so far."""
    if queue.kind == PortKind.PACKET_V2:
        release_v2(view(PacketQueue, address(queue)))
    elif queue.kind == PortKind.PACKET_V3:
        release_v3(view(PacketQueue, address(queue)))
    elif queue.kind == PortKind.XDP:
        release_xdp(view(XdpQueue, address(queue)))
    elif queue.kind == PortKind.MEMORY:
        release_memory(view(MemoryQueue, address(queue)))
    elif queue.kind == PortKind.DPDK:
        release_dpdk(view(DpdkQueue, address(queue)))
    else:
        release_messages(view(MessageQueue, address(queue)))


@kernel(inline=True)
def is_packet(queue: PortQueue) -> bool:
    """Return whether the queue has AF_PACKET rings."""
    return queue.kind <= PortKind.PACKET_V3


@kernel
def reserve(queue: PortQueue, length: u32) -> Array[u8]:
    """Return where a frame of up to `length` bytes may be written, or null (counted) if there is no room.

    The same place is returned until `commit`; an unneeded reservation may simply be dropped.
    """
    if is_packet(queue):
        return reserve_packet(view(PacketQueue, address(queue)), length)
    if queue.kind == PortKind.XDP:
        return reserve_xdp(view(XdpQueue, address(queue)), length)
    if queue.kind == PortKind.MEMORY:
        return reserve_memory(view(MemoryQueue, address(queue)), length)
    if queue.kind == PortKind.DPDK:
        return reserve_dpdk(view(DpdkQueue, address(queue)), length)
    return reserve_messages(view(MessageQueue, address(queue)), length)


@kernel
def commit(queue: PortQueue, length: u32) -> bool:
    """Queue the first `length` bytes of the reservation; return False, and count, if that length is not allowed."""
    if is_packet(queue):
        return commit_packet(view(PacketQueue, address(queue)), length)
    if queue.kind == PortKind.XDP:
        return commit_xdp(view(XdpQueue, address(queue)), length)
    if queue.kind == PortKind.MEMORY:
        return commit_memory(view(MemoryQueue, address(queue)), length)
    if queue.kind == PortKind.DPDK:
        return commit_dpdk(view(DpdkQueue, address(queue)), length)
    return commit_messages(view(MessageQueue, address(queue)), length)


@kernel
def flush(queue: PortQueue) -> u32:
    """Send queued frames; return how many were taken. Frames that the device has no room for stay queued."""
    if is_packet(queue):
        return flush_packet(view(PacketQueue, address(queue)))
    if queue.kind == PortKind.XDP:
        return flush_xdp(view(XdpQueue, address(queue)))
    if queue.kind == PortKind.MEMORY:
        return flush_memory(view(MemoryQueue, address(queue)))
    if queue.kind == PortKind.DPDK:
        return flush_dpdk(view(DpdkQueue, address(queue)))
    return flush_messages(view(MessageQueue, address(queue)))


@kernel
def is_readable(queue: PortQueue) -> bool:
    """Return whether `receive` would find something."""
    if queue.kind == PortKind.PACKET_V2:
        return is_readable_v2(view(PacketQueue, address(queue)))
    if queue.kind == PortKind.PACKET_V3:
        return is_readable_v3(view(PacketQueue, address(queue)))
    if queue.kind == PortKind.XDP:
        return is_readable_xdp(view(XdpQueue, address(queue)))
    if queue.kind == PortKind.MEMORY:
        return is_readable_memory(view(MemoryQueue, address(queue)))
    if queue.kind == PortKind.DPDK:
        return is_readable_dpdk(view(DpdkQueue, address(queue)))
    return is_readable_messages(view(MessageQueue, address(queue)))
