"""Single-hop reports: the reporter's own hop, in front of a packet of which only the INT headers are read."""

from __future__ import annotations

from collectors.native.kernels.decode.hops import read_hop
from collectors.native.kernels.decode.identity import NO_INT, has_whole_int, identity
from collectors.native.kernels.decode.layouts import (
    EXCEEDED,
    INT_MD,
    INT_WORDS_AT,
    SHIM_BYTES,
    TYPE_SHIFT,
)
from collectors.native.structures import Decoder, Layout, Packet
from dataplane.native import Array, as_u32, as_u64, kernel, load_be32, u8, u32, u64

DECODED = 0
OTHER = 1
FULL = 2


@kernel(inline=False)
def read_single(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], inner_at: u64, int_at: u64, end: u64, packet: Packet, own_at: u64, own: Layout
) -> u32:
    """Read the reporter's own hop; only check that the INT headers that the packet carries make sense."""
    int_end: u64 = int_at
    packet.missing = 0
    if int_at != NO_INT:
        if not has_whole_int(decoder, data, int_at, end):
            return OTHER
        int_end = int_at + SHIM_BYTES + 4 * as_u64(data[int_at + INT_WORDS_AT])
        if data[int_at] >> TYPE_SHIFT == INT_MD:
            packet.missing = load_be32(data, int_at + SHIM_BYTES) & EXCEEDED
        packet.ip_bytes -= min(packet.ip_bytes, as_u32(int_end - int_at))
    if decoder.hop_count == decoder.hop_room:
        return FULL
    hop = decoder.hops[as_u64(decoder.hop_count)]
    if not read_hop(data, own_at, own.words, hop):
        return OTHER
    hop.node_id = packet.node_id
    packet.identity = identity(data, inner_at, int_at, int_end, packet)
    packet.first_hop = decoder.hop_count
    packet.hop_count = 1
    decoder.hop_count += 1
    return DECODED
