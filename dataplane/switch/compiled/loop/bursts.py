"""Bursts of packets between Python and a program: kernels that `CompiledPipeline` calls."""

from __future__ import annotations

from dataplane.native import Array, address, array_at, as_u32, as_u64, copy, kernel, u8, u32, u64, view
from dataplane.switch.abi import Packet, Reason
from dataplane.switch.compiled.generated import NO_LENGTH
from dataplane.switch.compiled.loop.passes import admit, deflect, deparse, drop_unsent, run_egress
from dataplane.switch.compiled.memory.core import Core, count, drop
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES, give, take

PLACED_WORDS = 4
"""Address, port, priority, length of a packet for the traffic manager."""
DEQUEUED_WORDS = 7
"""Address, port, priority, enq_timestamp, enq_qdepth, deq_timedelta, deq_qdepth of a dequeued packet."""
SENT_WORDS = 3
"""Address, port, length of a frame; its bytes are its block's `data`."""


@kernel
def ingress_burst(core: Core, frames: Array[u64], lengths: Array[u32], ports: Array[u32], frame_count: u64) -> None:
    """Take frames, given by address, through parser and ingress at the machine's time."""
    for index in range(frame_count):
        length = lengths[index]
        if length > BUFFER_BYTES:
            count(core, Reason.FRAME_TOO_LONG)
            continue
        block = take(core.packets[0])
        if block == 0:
            count(core, Reason.NO_BUFFER)
            continue
        packet = view(Packet, block)
        copy(packet.data, array_at(u8, frames[index]), as_u64(length))
        admit(core, packet, ports[index], length)


@kernel
def take_placed(core: Core, placed: Array[u64], limit: u64) -> u64:
    """Write the next packets for the traffic manager, PLACED_WORDS each, and return how many."""
    taken: u64 = 0
    while core.placed_first != 0 and taken < limit:
        packet = view(Packet, core.placed_first)
        core.placed_first = packet.next
        word = taken * PLACED_WORDS
        placed[word] = address(packet)
        placed[word + 1] = as_u64(packet.egress_port)
        placed[word + 2] = as_u64(packet.priority)
        placed[word + 3] = as_u64(min(packet.packet_length, packet.truncate))
        taken += 1
    return taken


@kernel
def egress_burst(core: Core, dequeued: Array[u64], packet_count: u64, sent: Array[u64]) -> u64:
    """Run egress on packets, DEQUEUED_WORDS each, at the machine's time; write SENT_WORDS for each resulting frame."""
    frames: u64 = 0
    for index in range(packet_count):
        word = index * DEQUEUED_WORDS
        packet = view(Packet, dequeued[word])
        packet.egress_port = as_u32(dequeued[word + 1])
        packet.priority = as_u32(dequeued[word + 2])
        packet.enq_qdepth = as_u32(dequeued[word + 4])
        packet.deq_qdepth = as_u32(dequeued[word + 6])
        if run_egress(core, packet, dequeued[word + 3], dequeued[word + 5]):
            frames += _send(core, packet, sent, frames * SENT_WORDS)
    return frames


@kernel
def _send(core: Core, packet: Packet, sent: Array[u64], word: u64) -> u64:
    """Deparse a packet into a new block; return how many frames resulted."""
    block = take(core.frames[0])
    if block == 0:
        drop(core, packet, Reason.NO_BUFFER)
        return 0
    frame = view(Packet, block)
    length = deparse(core, packet, frame.data, BUFFER_BYTES)
    if length >= NO_LENGTH:
        give(core.frames[0], frame)
        drop_unsent(core, packet, length)
        return 0
    sent[word] = block
    sent[word + 1] = as_u64(packet.egress_port)
    sent[word + 2] = as_u64(length)
    give(core.packets[0], packet)
    return 1


@kernel
def give_packets(core: Core, packets: Array[u64], packet_count: u64) -> None:
    """Take back packets that are no longer needed."""
    for index in range(packet_count):
        give(core.packets[0], view(Packet, packets[index]))


@kernel
def give_frames(core: Core, sent: Array[u64], frame_count: u64) -> None:
    """Take back the blocks of frames, SENT_WORDS each."""
    for index in range(frame_count):
        give(core.frames[0], view(Packet, sent[index * SENT_WORDS]))


KERNELS = (ingress_burst, take_placed, egress_burst, deflect, give_packets, give_frames)
"""Kernels called from Python."""
