"""Report packets that look like an earlier one, for which `decode_individual` need not repeat its work.

A pattern is a report packet with one report of a stack. All bits that determine the layout matter; those of values do
not. A packet with the same bits has the same form, so only its values are read, by the same rules.
"""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.decode.hops import NO_EGRESS, layout_of, name_of, read_hop
from collectors.native.kernels.decode.layouts import (
    ARRIVED,
    BEFORE_ARRIVED,
    BUFFER,
    DOMAIN_INSTRUCTIONS_AT,
    EXCEEDED,
    GROUP_BYTES,
    HOP_WORDS_AT,
    HOP_WORDS_MASK,
    INDIVIDUAL_BYTES,
    INSTRUCTIONS_AT,
    INT_WORDS_AT,
    KEEPS_PORT,
    LEFT,
    NEXT_MASK,
    NEXT_SHIFT,
    OLD_PORT_AT,
    OWN_BITS_AT,
    OWN_WORDS_AT,
    REPORT_BYTES,
    REPORTER_AT,
    SHIM_BYTES,
    STACK_AT,
)
from collectors.native.kernels.sequence import content_mark
from collectors.native.structures import NONE32, PATTERN_BYTES, STACK, Decoder, Hop, Packet, Pattern
from dataplane.native import (
    Array,
    address,
    array_at,
    as_u32,
    as_u64,
    fill,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    offset,
    popcount,
    reference,
    same_bits,
    spread_be32,
    u8,
    u32,
    u64,
)
from dataplane.wire.ipv4 import PROTOCOL_UDP

REPORT_AT = GROUP_BYTES
OWN_AT = REPORT_AT + REPORT_BYTES
HALF = PATTERN_BYTES // 2
FIRST_BYTE_SHIFT = 24
"""Shift of a header's first byte in its first word."""
SHIM_FORM = 0xF0 | NEXT_MASK << (NEXT_SHIFT - FIRST_BYTE_SHIFT)
INT_FORM = 0xF0 | EXCEEDED >> FIRST_BYTE_SHIFT
"""Bits of the first byte of a shim, and of an INT header, that determine the layout."""
PATIENCE = 8
"""Number of packets that fail to match a pattern before one of them replaces it."""


@kernel(inline=True)
def pattern_of(decoder: Decoder, length: u64) -> Pattern:
    """Return the only pattern that a payload of a length may fit."""
    return decoder.patterns[length >> 2 & decoder.pattern_mask]


@kernel(inline=True)
def decode_alike(decoder: Decoder, pattern: Pattern, data: Array[u8], row: u32) -> bool:
    """Read a payload as long as a pattern if it fits and nothing in it is unusual; nothing is changed otherwise."""
    if not same_bits(data, pattern.known, pattern.mask) or not same_bits(
        offset(data, HALF), offset(pattern.known, HALF), offset(pattern.mask, HALF)
    ):
        return False
    first: u64 = as_u64(decoder.hop_count)
    count: u64 = as_u64(pattern.stack_hops)
    if first + count >= as_u64(decoder.hop_room) or decoder.packet_count == decoder.packet_room:
        return False
    packet = decoder.packets[as_u64(decoder.packet_count)]
    if not read_addresses(decoder, pattern, data, packet):
        return False
    packet.node_id = load_be32(data, REPORTER_AT)
    hops = array_at(Hop, address(decoder.hops[first]))
    if pattern.timed != 0:
        if not read_timed(pattern, data, hops, count):
            return False
    elif not read_any(pattern, data, hops, count):
        return False
    hops[count].node_id = packet.node_id
    packet.kind = STACK
    packet.dropped = 0
    packet.inner = address(offset(data, as_u64(pattern.inner_at)))
    packet.stamped = pattern.timed
    packet.missing = pattern.missing
    packet.first_hop = as_u32(first)
    packet.hop_count = as_u32(count) + 1
    packet.row = row
    packet.leads = 1
    packet.sequence = load_be32(data, 0)
    packet.mark = content_mark(data, as_u64(pattern.length) - 1)
    decoder.hop_count += as_u32(count) + 1
    decoder.packet_count += 1
    return True


@kernel(inline=True)
def read_timed(pattern: Pattern, data: Array[u8], hops: Array[Hop], count: u64) -> bool:
    """Read hops that all report when the packet arrived; False where something is unusual."""
    at: u64 = as_u64(pattern.stack_end)
    hop_bytes: u64 = as_u64(pattern.hop_bytes)
    times: u64 = 0
    index: u64 = 0
    while index < count:
        at -= hop_bytes
        spread_be32(array_at(u32, address(hops[index])), data, at, pattern.words)
        name: u64 = name_of(hops[index])
        if name & NO_EGRESS == NO_EGRESS or as_u32(name) == NONE32:
            return False
        hops[index].arrived_ns = load_be64(data, at + as_u64(pattern.arrived_at))
        times |= hops[index].arrived_ns
        index += 1
    spread_be32(array_at(u32, address(hops[count])), data, OWN_AT, pattern.own_words)
    if name_of(hops[count]) & NO_EGRESS == NO_EGRESS:
        return False
    hops[count].arrived_ns = load_be64(data, OWN_AT + as_u64(pattern.own_arrived_at))
    return (times | hops[count].arrived_ns) >> 63 == 0


@kernel(inline=False)
def read_any(pattern: Pattern, data: Array[u8], hops: Array[Hop], count: u64) -> bool:
    """Read hops, whatever they report; False where one does not report node or egress port."""
    at: u64 = as_u64(pattern.stack_end)
    index: u64 = 0
    while index < count:
        at -= as_u64(pattern.hop_bytes)
        if not read_hop(data, at, pattern.words, hops[index]) or hops[index].node_id == NONE32:
            return False
        index += 1
    return read_hop(data, OWN_AT, pattern.own_words, hops[count])


@kernel(inline=True)
def read_addresses(decoder: Decoder, pattern: Pattern, data: Array[u8], packet: Packet) -> bool:
    """Read a packet's key and its length without INT; False where these are unusual."""
    inner_at: u64 = as_u64(pattern.inner_at)
    ports_at: u64 = as_u64(pattern.ports_at)
    ip_bytes: u32 = 0
    if pattern.is_ipv4 != 0:
        ip_bytes = as_u32(load_be16(data, inner_at + 2))
        packet.key[0] = 0
        packet.key[1] = as_u64(load_be32(data, inner_at + 12))
        packet.key[2] = 0
        packet.key[3] = as_u64(load_be32(data, inner_at + 16))
        if ip_bytes < pattern.ports_at - pattern.inner_at:
            return False
    else:
        ip_bytes = 40 + as_u32(load_be16(data, inner_at + 4))
        packet.key[0] = load_be64(data, inner_at + 8)
        packet.key[1] = load_be64(data, inner_at + 16)
        packet.key[2] = load_be64(data, inner_at + 24)
        packet.key[3] = load_be64(data, inner_at + 32)
    target: u32 = as_u32(load_be16(data, as_u64(pattern.target_at)))
    if pattern.is_udp != 0 and (load_be16(data, ports_at + 4) < 8 or target == decoder.report_port):
        return False
    packet.key[4] = (as_u64(load_be16(data, ports_at)) << 16 | as_u64(target)) << 16 | pattern.about
    packet.hash = hash_key(reference(packet.key[0]))
    packet.ip_bytes = ip_bytes - min(ip_bytes, pattern.int_bytes)
    return True


@kernel(inline=False)
def learn_pattern(decoder: Decoder, data: Array[u8], length: u64, packet: Packet) -> None:
    """Make a pattern of a payload that is one report of a stack, in place of one that seldom fits."""
    pattern = pattern_of(decoder, length)
    pattern.misses += 1
    own_bits: u64 = as_u64(load_be16(data, REPORT_AT + INDIVIDUAL_BYTES + OWN_BITS_AT))
    if pattern.length != 0 and pattern.misses < PATIENCE:
        return
    # Without its own values, whether the reporter is a hop more depends on the last one's node id.
    if packet.kind != STACK or packet.dropped != 0 or own_bits == 0 or packet.shim_at + STACK_AT > PATTERN_BYTES:
        return
    shim_at: u64 = as_u64(packet.shim_at)
    if load_be16(data, shim_at + DOMAIN_INSTRUCTIONS_AT) != 0:
        # With words of a domain behind the hops, it takes more to see where they end.
        return
    inner_at: u64 = OWN_AT + 4 * as_u64(data[REPORT_AT + OWN_WORDS_AT])
    pattern.misses = 0
    pattern.length = as_u32(length) + 1
    pattern.inner_at = as_u32(inner_at)
    pattern.own_words = layout_of(decoder, as_u32(own_bits)).words
    pattern.words = layout_of(decoder, as_u32(load_be16(data, shim_at + INSTRUCTIONS_AT))).words
    pattern.stack_hops = packet.hop_count - 1
    pattern.stack_end = packet.shim_at + SHIM_BYTES + 4 * as_u32(data[shim_at + INT_WORDS_AT])
    pattern.hop_bytes = 4 * as_u32(data[shim_at + HOP_WORDS_AT] & HOP_WORDS_MASK)
    pattern.int_bytes = pattern.stack_end - packet.shim_at
    pattern.missing = packet.missing
    pattern.about = packet.key[4] & 0xFFFF
    pattern.timed = as_u32(is_timed(pattern.own_words) and (packet.hop_count == 1 or is_timed(pattern.words)))
    pattern.arrived_at = 4 * popcount(pattern.words & BEFORE_ARRIVED)
    pattern.own_arrived_at = 4 * popcount(pattern.own_words & BEFORE_ARRIVED)
    note_same(decoder, pattern, data, shim_at)


@kernel
def is_timed(words: u32) -> bool:
    """Return whether hops report when packets arrived, but not when they left, nor of buffers."""
    return words & (ARRIVED | LEFT | BUFFER) == ARRIVED


@kernel
def note_same(decoder: Decoder, pattern: Pattern, data: Array[u8], shim_at: u64) -> None:
    """Record the bits that a payload must share with a pattern, and the offset of its ports."""
    inner_at: u64 = as_u64(pattern.inner_at)
    mask = pattern.mask
    fill(mask, 0, PATTERN_BYTES)
    fill(pattern.known, 0, PATTERN_BYTES)
    mask[0] = 0xF0  # version of the group's header
    fill(offset(mask, REPORT_AT), 0xFF, OWN_AT - REPORT_AT)
    pattern.is_ipv4 = as_u32(data[inner_at] >> 4 == 4)
    pattern.is_udp = as_u32(pattern.about >> 8 == PROTOCOL_UDP)
    if pattern.is_ipv4 != 0:
        mask[inner_at] = 0xFF  # version and length of the header
        mask[inner_at + 1] = 0xFC  # DSCP
        mask[inner_at + 6] = 0x1F  # fragment offset
        mask[inner_at + 7] = 0xFF
        mask[inner_at + 9] = 0xFF  # protocol
        pattern.ports_at = pattern.inner_at + 4 * as_u32(data[inner_at] & 0xF)
    else:
        mask[inner_at] = 0xFF  # version and DSCP
        mask[inner_at + 1] = 0xC0
        mask[inner_at + 6] = 0xFF  # next header
        pattern.ports_at = pattern.inner_at + 40
    ports_at: u64 = as_u64(pattern.ports_at)
    pattern.target_at = pattern.ports_at + 2
    if pattern.is_udp == 0:
        mask[ports_at + 12] = 0xF0  # length of the TCP header
    elif as_u32(load_be16(data, ports_at + 2)) == decoder.udp_port:
        mask[ports_at + 2] = 0xFF
        mask[ports_at + 3] = 0xFF
    if pattern.is_udp != 0 and data[shim_at] >> NEXT_SHIFT - FIRST_BYTE_SHIFT & NEXT_MASK == KEEPS_PORT:
        pattern.target_at = as_u32(shim_at) + OLD_PORT_AT
    mask[shim_at] = SHIM_FORM  # kind of INT, what follows
    mask[shim_at + INT_WORDS_AT] = 0xFF  # length
    mask[shim_at + SHIM_BYTES] = INT_FORM  # version, hops that were left out
    mask[shim_at + HOP_WORDS_AT] = HOP_WORDS_MASK  # bytes a hop
    mask[shim_at + INSTRUCTIONS_AT] = 0xFF  # bitmap
    mask[shim_at + INSTRUCTIONS_AT + 1] = 0xFF
    mask[shim_at + DOMAIN_INSTRUCTIONS_AT] = 0xFF  # bitmap of the domain
    mask[shim_at + DOMAIN_INSTRUCTIONS_AT + 1] = 0xFF
    index: u64 = 0
    while index < shim_at + STACK_AT:
        pattern.known[index] = data[index]
        index += 1
