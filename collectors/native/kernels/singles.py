"""Reports of one hop each: hop by hop, MX, XD, and of congested queues.

A queue's report says all by itself. The others are joined with those of the packet's other hops, by the reference: of
all packets or, where there are too many, of some, chosen by what they are, so that all hops of a packet are joined or
none. A hop that is not joined tells its egress link's load, and its delay by the time that it took itself.
"""

from __future__ import annotations

from collectors.native.kernels.flows import count_packet, touch_flow
from collectors.native.kernels.hops import read_hop
from collectors.native.kernels.samples import HOP_LATENCY, add_sample
from collectors.native.structures import (
    HOP_BY_HOP,
    MX,
    NONE32,
    NONE64,
    QUEUE,
    STACK,
    Decoder,
    Fabric,
    Layout,
    Packet,
)
from dataplane.native import Array, as_u32, as_u64, kernel, load_be16, load_be32, reference, u8, u32, u64

DECODED = 0
OTHER = 1
FULL = 2
NO_INT = 1
"""In place of where INT stands, of a packet that carries none."""
IPV4 = 4
TCP = 6
INT_MD = 1
INT_VERSION = 2
HEADER_BYTES = 12
_SPREAD = 0x9E37_79B9_7F4A_7C15


@kernel(inline=False)
def read_single(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], inner_at: u64, int_at: u64, end: u64, packet: Packet, own_at: u64, own: Layout
) -> u32:
    """Read the reporter's own hop; look only whether the INT headers that the packet carries make sense."""
    int_end: u64 = int_at
    if int_at != NO_INT:
        int_end = int_at + 4 + 4 * as_u64(data[int_at + 1])
        if int_end > end or int_at + 4 + HEADER_BYTES > int_end or data[int_at + 4] >> 4 != INT_VERSION:
            return OTHER
        if data[int_at] >> 4 == INT_MD and int_at + 4 + HEADER_BYTES != int_end:
            # Metadata of a stack that is not told of: whether it makes sense is the reference's to say.
            return OTHER
        packet.ip_bytes -= min(packet.ip_bytes, as_u32(int_end - int_at))
    if decoder.hop_count == decoder.hop_room:
        return FULL
    hop = decoder.hops[as_u64(decoder.hop_count)]
    hop.node_id = packet.node_id
    if not read_hop(data, own_at, own, hop):
        return OTHER
    packet.identity = identity(data, inner_at, int_at, int_end, packet)
    packet.first_hop = decoder.hop_count
    packet.hop_count = 1
    decoder.hop_count += 1
    decoder.singles += 1
    return DECODED


@kernel
def identity(data: Array[u8], inner_at: u64, int_at: u64, int_end: u64, packet: Packet) -> u64:
    """Return what tells a flow's packets apart, the same at every hop: `collectors.decode` calls it the packet's id."""
    at: u64 = inner_at + 40
    found: u64 = 0
    if data[inner_at] >> 4 == IPV4:
        at = inner_at + as_u64(data[inner_at] & 0xF) * 4
        found = as_u64(load_be16(data, inner_at + 4) & 0x7FFF) << 48
    times: u64 = 2
    checksum_at: u64 = at + 6
    if packet.key[4] >> 8 & 0xFF == TCP:
        found |= as_u64(load_be32(data, at + 4)) << 16
        checksum_at = at + 16
        times = 1
    checksum: u64 = as_u64(load_be16(data, checksum_at))
    if checksum != 0 and int_at != NO_INT:
        # As the source sent it: without INT's bytes, without their number in the lengths, with the port that it had.
        checksum += as_u64(load_be16(data, at + 2)) + 0xFFFF - (packet.key[4] >> 16 & 0xFFFF)
        checksum += (int_end - int_at) * times
        while int_at < int_end:
            checksum += as_u64(load_be16(data, int_at))
            int_at += 2
        checksum %= 0xFFFF
    return found | checksum


@kernel(inline=True)
def is_chosen(fabric: Fabric, packet: Packet) -> bool:
    """Return whether a packet is one of those whose hops are joined."""
    mixed: u64 = (packet.hash ^ (packet.identity * _SPREAD)) * _SPREAD
    return (mixed >> 40) & fabric.join_mask == 0


@kernel(inline=False)
def waits_for_others(fabric: Fabric, decoder: Decoder, leader: u32) -> bool:
    """Return whether a report packet has a hop that is to be joined with others; counted, as it is then given back."""
    i: u32 = leader
    while i < decoder.packet_count and decoder.packets[i].row == decoder.packets[leader].row:
        packet = decoder.packets[i]
        if packet.kind != STACK and packet.kind != QUEUE and is_chosen(fabric, packet):  # noqa: PLR1714
            fabric.joined += 1
            return True
        i += 1
    return False


@kernel(inline=False)
def take_single(fabric: Fabric, decoder: Decoder, packet: Packet) -> None:
    """Take a queue's report, or what a hop says without the others."""
    hop = decoder.hops[as_u64(packet.first_hop)]
    known: bool = hop.switch != NONE32 and hop.link != NONE32  # noqa: PLR1714 - kernels have no `in`
    fabric.records += 1
    ends: bool = packet.kind == HOP_BY_HOP and packet.last != 0
    if packet.kind == MX and known:
        ends = fabric.links[as_u64(hop.link)].head_switch == NONE32
    if ends:
        cell = touch_flow(fabric, reference(packet.key[0]), packet.hash, fabric.now_ns)
        count_packet(fabric, cell, as_u64(packet.ip_bytes))
    fabric.withheld += as_u64(packet.kind != QUEUE)
    if hop.switch == NONE32:
        fabric.unknown_node += 1
        return
    if hop.link == NONE32:
        fabric.unknown_port += 1
        return
    delay_ns: u64 = NONE64
    if packet.kind != QUEUE and hop.latency_ns != NONE32:
        delay_ns = as_u64(hop.latency_ns) + fabric.links[as_u64(hop.link)].delay_ns
    time_ns: u64 = hop.arrived_ns if hop.left_ns == NONE64 else hop.left_ns
    add_sample(
        fabric,
        hop.link,
        hop.switch,
        time_ns,
        fabric.now_ns,
        delay_ns,
        HOP_LATENCY,
        hop.queue,
        hop.tx_bytes,
        hop.buffer,
    )
