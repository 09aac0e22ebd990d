"""Packet transport as frames of our own queue, without the kernel's UDP: all frames have the same headers.

Ethernet(14) IPv4(20) UDP(8): EtherType16 at 12, VersionLength8 at 14, Fragment16 at 20, Protocol8 at 23, Source32 at
26, Destination32 at 30, SourcePort16 at 34, DestinationPort16 at 36, Length16 at 38.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import BURST, LINK_BYTES, PACKET_BYTES, EngineState, Status
from dataplane.allreduce.kernels.receive import accept_packet
from dataplane.allreduce.kernels.send_schedule import packet_of
from dataplane.linux import EMSGSIZE, ENETDOWN
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i64,
    as_u32,
    as_u64,
    copy,
    kernel,
    load_be16,
    load_be32,
    offset,
    stack_array,
    u8,
    u32,
    u64,
)
from dataplane.nic.ports.kernels.dispatch import commit, flush, receive, release, reserve
from dataplane.nic.ports.kernels.waiting import RETRY_NS, wait

_FRAME_BYTES = LINK_BYTES + PACKET_BYTES
_UDP_BYTES = 8
_IPV4, _NO_OPTIONS, _UDP = 0x0800, 0x45, 17
_FRAGMENT = 0x3FFF


@kernel
def send_frames(engine: EngineState, count: u32) -> u32:
    """Queue the gathered items and flush; return how many there was room for."""
    queue = engine.queue
    if queue.transmit_room < _FRAME_BYTES or queue.longest_frame < _FRAME_BYTES:
        engine.error = EMSGSIZE
        engine.status = Status.SOCKET
        return count
    taken: u32 = 0
    while taken < count:
        slot: Array[u8] = reserve(queue, _FRAME_BYTES)
        if address(slot) == 0:
            break
        copy(slot, engine.link, LINK_BYTES)
        copy(offset(slot, LINK_BYTES), packet_of(engine, engine.tx_items[taken]), PACKET_BYTES)
        commit(queue, _FRAME_BYTES)
        taken += 1
    flush(queue)
    if queue.down != 0:  # it may come back: timers will retry
        engine.error = ENETDOWN
        return count
    return taken


@kernel
def receive_frames(engine: EngineState) -> u32:
    """Receive at most one burst; return the number of frames, including those for others."""
    if engine.queue.tx_pending != 0:
        flush(engine.queue)
    count: u32 = receive(engine.queue, engine.frames, engine.lengths, BURST)
    for at in range(as_u64(count)):
        frame: Array[u8] = array_at(u8, engine.frames[at])
        length: u32 = engine.lengths[at]
        if length >= LINK_BYTES and is_answer(frame, engine.link):
            nbytes: u32 = as_u32(load_be16(frame, 38))
            if nbytes >= _UDP_BYTES and nbytes <= length - (LINK_BYTES - _UDP_BYTES):
                accept_packet(engine, offset(frame, LINK_BYTES), nbytes - _UDP_BYTES)
    if count > 0:
        release(engine.queue)
    return count


@kernel(inline=True)
def is_answer(frame: Array[u8], link: Array[u8]) -> bool:
    """Return whether a frame is a UDP packet from the destination of frames with these headers."""
    if load_be16(frame, 12) != _IPV4 or frame[14] != _NO_OPTIONS or frame[23] != _UDP:
        return False
    if (load_be16(frame, 20) & _FRAGMENT) != 0:
        return False
    hosts: bool = load_be32(frame, 26) == load_be32(link, 30) and load_be32(frame, 30) == load_be32(link, 26)
    return hosts and load_be16(frame, 34) == load_be16(link, 36) and load_be16(frame, 36) == load_be16(link, 34)


@kernel
def wait_for_frames(engine: EngineState, left_ns: u64) -> None:
    """Wait for a frame, or briefly for room in the queue if it is full."""
    queues = stack_array(u64, 1)
    queues[0] = address(engine.queue)
    wait(queues, 1, -1, as_i64(min(left_ns, RETRY_NS) if engine.blocked != 0 else left_ns))
