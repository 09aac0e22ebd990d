"""Decoding of report payloads into packets and hops: the common forms only, as in `collectors.decode.reports`.

These are INT reports of IPv4 or IPv6 packets with UDP or TCP, marked by DSCP or UDP port or not at all, every hop with
node id and egress interface. Everything else, including tunnels and malformed reports, is left to Python
(`collectors.report_reader`).
"""

from __future__ import annotations

from collectors.decode.reports import HOP_BY_HOP as HOP_BY_HOP_BIT
from collectors.decode.reports import LAST_HOP, REMAINING_HOPS
from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.decode.hops import egress_of, ingress_of, layout_of, read_hop
from collectors.native.kernels.decode.identity import NO_INT, has_whole_int, hops_size, identity_of_stack
from collectors.native.kernels.decode.layouts import (
    COMPLETION_BIT,
    COMPLETION_BYTES,
    DOMAIN_BITS,
    DOMAIN_SHIFT_64,
    DROPPED,
    EXCEEDED,
    GROUP_BYTES,
    HOP_WORDS_MASK,
    HOP_WORDS_SHIFT,
    INDIVIDUAL_BYTES,
    INSTRUCTIONS_AT,
    INT_MD,
    INT_MX,
    INT_VERSION,
    INT_WORDS_AT,
    INTERMEDIATE_BIT,
    KEEPS_PORT,
    LAST,
    NEXT_MASK,
    NEXT_SHIFT,
    OLD_PORT_MASK,
    OUR_DOMAIN,
    OWN_BITS_SHIFT_64,
    OWN_WORDS_SHIFT,
    QUEUE_ONLY,
    QUEUE_OR_FLOW,
    REASON_BEFORE_END,
    REPORT_BYTES,
    REPORT_OF_IPV4,
    REPORT_OF_IPV6,
    REPORT_VERSION,
    REPORT_WORDS_SHIFT,
    REPORTER_AT,
    RESERVED_IN_COMPLETION,
    SHIM_BYTES,
    STACK_AT,
    TO_THE_END,
    TRACKED,
    TYPE_SHIFT,
    TYPES_SHIFT,
    VERSION_SHIFT,
)
from collectors.native.kernels.decode.own_hop import read_single
from collectors.native.kernels.decode.patterns import decode_alike, learn_pattern, pattern_of
from collectors.native.kernels.sequence import content_mark
from collectors.native.structures import (
    CAPPED,
    COMPLETION,
    HOP_BY_HOP,
    INTERMEDIATE,
    MX,
    NO_HOPS,
    NONE32,
    QUEUE,
    STACK,
    XD,
    Decoder,
    Packet,
)
from dataplane.native import (
    Array,
    address,
    as_u32,
    as_u64,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    offset,
    reference,
    u8,
    u32,
    u64,
)
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.ipv4 import PROTOCOL_TCP, PROTOCOL_UDP

DECODED = 0
OTHER = 1
FULL = 2

FRAGMENT_OFFSET = 0x1FFF
INT_DISCARD = DropReason.INT_DISCARD.value


@kernel(inline=True)
def decode_report(decoder: Decoder, data: Array[u8], length: u64, row: u32) -> u32:
    """Decode a report payload; if it cannot be decoded in full, undo the partial result."""
    pattern = pattern_of(decoder, length)
    if as_u64(pattern.length) == length + 1 and decode_alike(decoder, pattern, data, row):
        return DECODED
    return decode_unlike(decoder, data, length, row)


@kernel(inline=False)
def decode_unlike(decoder: Decoder, data: Array[u8], length: u64, row: u32) -> u32:
    """Read a report payload step by step, and maybe make a pattern of it."""
    packets: u32 = decoder.packet_count
    hops: u32 = decoder.hop_count
    if length < GROUP_BYTES + INDIVIDUAL_BYTES or load_be32(data, 0) >> VERSION_SHIFT != REPORT_VERSION:
        return OTHER
    at: u64 = GROUP_BYTES
    drops: u32 = 0
    outcome: u32 = DECODED
    while at < length and outcome == DECODED:
        if at + REPORT_BYTES > length:
            outcome = OTHER
            break
        head: u32 = load_be32(data, at)
        words: u64 = as_u64(head >> REPORT_WORDS_SHIFT & 0xFF)
        end: u64 = length
        if words != TO_THE_END:
            end = at + INDIVIDUAL_BYTES + 4 * words
        if end > length:
            outcome = OTHER
            break
        outcome = decode_individual(decoder, data, at, end, head)
        if outcome == DECODED:
            packet = decoder.packets[as_u64(decoder.packet_count)]
            packet.row = row
            packet.leads = 0
            packet.sequence = load_be32(data, 0)
            if at == GROUP_BYTES:
                packet.leads = 1
                packet.mark = content_mark(data, length)
            packet.hash = hash_key(reference(packet.key[0]))
            packet.stamped = 0
            if packet.dropped != 0:
                drops += 1
                packet.dropped = packet.dropped if drops <= decoder.most_drops else CAPPED
            decoder.packet_count += 1
            if at == GROUP_BYTES and end == length:
                learn_pattern(decoder, data, length, packet)
        at = end
    if outcome != DECODED:
        decoder.packet_count = packets
        decoder.hop_count = hops
        if outcome == FULL and packets == 0:
            outcome = OTHER
    return outcome


@kernel(inline=True)
def decode_individual(decoder: Decoder, data: Array[u8], at: u64, end: u64, head: u32) -> u32:
    """Decode an individual report that begins at `at` and ends at most at `end`."""
    kind: u32 = head >> TYPES_SHIFT
    if kind != REPORT_OF_IPV4 and kind != REPORT_OF_IPV6:  # noqa: PLR1714 - kernels have no `in`
        return OTHER
    if at + REPORT_BYTES > end:
        return OTHER
    if decoder.packet_count == decoder.packet_room:
        return FULL
    packet = decoder.packets[as_u64(decoder.packet_count)]
    main: u64 = load_be64(data, at + INDIVIDUAL_BYTES)
    bits: u32 = as_u32(main >> OWN_BITS_SHIFT_64)
    own_at: u64 = at + REPORT_BYTES
    own_bytes: u32 = (head >> OWN_WORDS_SHIFT & 0xFF) * 4
    inner_at: u64 = own_at + as_u64(own_bytes)
    own = layout_of(decoder, bits)
    if inner_at > end or own.nbytes > own_bytes:
        return OTHER
    packet.node_id = load_be32(data, REPORTER_AT)
    int_at: u64 = read_flow(decoder, data, inner_at, end, packet, kind)
    if int_at == 0:
        return OTHER
    read_kind(data, head, main, int_at, packet)
    packet.inner = address(offset(data, inner_at))
    packet.dropped = head & DROPPED
    packet.tracked = head & TRACKED
    if packet.dropped != 0:
        return read_drop(decoder, data, int_at, end, packet, own_at, bits)
    if packet.kind == COMPLETION:
        return read_completion(decoder, data, main, own_at + as_u64(own.nbytes), inner_at, packet, kind)
    if packet.kind != STACK and packet.kind != INTERMEDIATE:  # noqa: PLR1714 - kernels have no `in`
        return read_single(decoder, data, inner_at, int_at, end, packet, own_at, own)
    outcome: u32 = read_stack(decoder, data, int_at, end, packet, own_at, bits)
    if outcome == DECODED and packet.kind == INTERMEDIATE:
        packet.identity = identity_of_stack(packet)
    return outcome


@kernel(inline=True)
def read_kind(data: Array[u8], head: u32, main: u64, int_at: u64, packet: Packet) -> None:
    """Note a report's kind, by its flags, its domain's status, and the INT that its packet carries."""
    packet.kind = STACK
    if head & QUEUE_OR_FLOW == QUEUE_ONLY:
        packet.kind = QUEUE
    elif (main >> DOMAIN_SHIFT_64 & 0xFFFF) == OUR_DOMAIN and main & HOP_BY_HOP_BIT != 0:
        packet.kind = HOP_BY_HOP
        packet.last = as_u32(main & LAST_HOP)
        packet.remaining = as_u32(main & REMAINING_HOPS)
    elif int_at == NO_INT:
        packet.kind = XD
        if main & COMPLETION_BIT != 0 and (main >> DOMAIN_SHIFT_64 & 0xFFFF) == OUR_DOMAIN:
            packet.kind = COMPLETION
    elif data[int_at] >> TYPE_SHIFT == INT_MX:
        packet.kind = MX
    elif head & INTERMEDIATE_BIT != 0:
        packet.kind = INTERMEDIATE


@kernel(inline=True)
def read_flow(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], at: u64, end: u64, packet: Packet, kind: u32
) -> u64:
    """Decode the truncated packet up to its INT shim; return its offset, NO_INT, or 0 if the form is unsupported."""
    l4_at: u64 = 0
    dscp: u32 = 0
    protocol: u64 = 0
    version: u64 = 4
    if kind == REPORT_OF_IPV4:
        if at + 20 > end:
            return 0
        first: u32 = load_be32(data, at)
        l4_at = at + as_u64(first >> 24 & 0xF) * 4
        packet.ip_bytes = first & 0xFFFF
        if first >> 28 != 4 or l4_at < at + 20 or as_u64(packet.ip_bytes) < l4_at - at or l4_at > end:
            return 0
        if load_be16(data, at + 6) & FRAGMENT_OFFSET != 0:
            return 0
        dscp = first >> 18 & 0x3F
        protocol = as_u64(data[at + 9])
        packet.key[0] = 0
        packet.key[1] = as_u64(load_be32(data, at + 12))
        packet.key[2] = 0
        packet.key[3] = as_u64(load_be32(data, at + 16))
    else:
        if at + 40 > end or data[at] >> 4 != 6:
            return 0
        l4_at = at + 40
        version = 6
        packet.ip_bytes = 40 + as_u32(load_be16(data, at + 4))
        dscp = load_be32(data, at) >> 22 & 0x3F
        protocol = as_u64(data[at + 6])
        packet.key[0] = load_be64(data, at + 8)
        packet.key[1] = load_be64(data, at + 16)
        packet.key[2] = load_be64(data, at + 24)
        packet.key[3] = load_be64(data, at + 32)
    return read_ports(decoder, data, l4_at, end, packet, protocol << 8 | version, dscp)


@kernel(inline=True)
def is_plain(decoder: Decoder, port: u32) -> bool:
    """Return whether a UDP packet to a port that no mark assigns to INT is neither a tunnel nor a report."""
    return port != decoder.report_port and port != decoder.tunnel_port and port != decoder.tunnel_port2  # noqa: PLR1714


@kernel(inline=True)
def read_ports(  # noqa: C901, PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], at: u64, end: u64, packet: Packet, about: u64, dscp: u32
) -> u64:
    """Decode the ports of a packet; return its INT shim's offset, NO_INT, or 0 if finding it takes more."""
    protocol: u64 = about >> 8
    if at + 8 > end:
        return 0
    ports: u32 = load_be32(data, at)
    shim_at: u64 = at + 8
    by_port: bool = False
    if protocol == PROTOCOL_UDP:
        if load_be16(data, at + 4) < 8:
            return 0
        by_port = (ports & 0xFFFF) == decoder.udp_port
    elif protocol == PROTOCOL_TCP:
        if at + 20 > end:
            return 0
        size: u64 = as_u64(data[at + 12] >> 4) * 4
        shim_at = at + size
        if size < 20 or shim_at > end:
            return 0
    else:
        return 0
    if not by_port and decoder.by_port_only != 0:
        return 0
    if not by_port and (dscp ^ decoder.dscp) & decoder.dscp_mask != 0:
        if protocol == PROTOCOL_UDP and not is_plain(decoder, ports & 0xFFFF):
            return 0
        packet.key[4] = as_u64(ports) << 16 | about
        return NO_INT
    if shim_at + SHIM_BYTES > end:
        return 0
    shim: u32 = load_be32(data, shim_at)
    following: u32 = shim >> NEXT_SHIFT & NEXT_MASK
    if (shim >> VERSION_SHIFT != INT_MD and shim >> VERSION_SHIFT != INT_MX) or following > KEEPS_PORT:
        return 0
    if following == KEEPS_PORT and protocol == PROTOCOL_UDP:
        ports = ports >> 16 << 16 | shim & OLD_PORT_MASK
    if protocol == PROTOCOL_UDP and (ports & 0xFFFF) == decoder.report_port:
        return 0
    packet.key[4] = as_u64(ports) << 16 | about
    return shim_at


@kernel(inline=False)
def read_completion(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], main: u64, at: u64, inner_at: u64, packet: Packet, kind: u32
) -> u32:
    """Note the offset of a switch's completion; additional data in the domain is left to the reference."""
    alone: bool = main & DOMAIN_BITS == COMPLETION_BIT and at + COMPLETION_BYTES == inner_at
    if not alone or kind != REPORT_OF_IPV4 or load_be32(data, at) & RESERVED_IN_COMPLETION != 0:
        return OTHER
    packet.inner = address(offset(data, at))
    packet.first_hop = decoder.hop_count
    packet.hop_count = 0
    packet.missing = 0
    return DECODED


@kernel(inline=False)
def read_drop(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], int_at: u64, end: u64, packet: Packet, own_at: u64, own_bits: u32
) -> u32:
    """Read a drop's ports, and of a packet that is tracked the hops before it; drops on purpose are Python's."""
    own = layout_of(decoder, own_bits)
    packet.drop_reason = NONE32
    if own_bits & LAST != 0:
        # The last word of those that the bitmap asks for: queue, reason.
        packet.drop_reason = as_u32(data[own_at + as_u64(own.nbytes) - REASON_BEFORE_END])
    if packet.drop_reason == INT_DISCARD:
        return OTHER
    if decoder.leaves_drops != 0 or (int_at != NO_INT and not has_whole_int(decoder, data, int_at, end)):
        return OTHER
    if decoder.hop_count == decoder.hop_room:
        return FULL
    hop = decoder.hops[as_u64(decoder.hop_count)]
    read_hop(data, own_at, own.words, hop)
    packet.drop_ingress = ingress_of(hop)
    packet.drop_egress = egress_of(hop)
    packet.hop_count = 0
    packet.first_hop = decoder.hop_count
    if packet.kind == STACK and packet.tracked != 0:
        outcome: u32 = read_hops(decoder, data, int_at, end, packet)
        if outcome != DECODED:
            return outcome
        decoder.hop_count += packet.hop_count
    packet.missing = 1
    if packet.hop_count == 0:
        packet.kind = NO_HOPS
    return DECODED


@kernel(inline=True)
def read_stack(  # noqa: PLR0917 - kernels have no keywords
    decoder: Decoder, data: Array[u8], shim_at: u64, end: u64, packet: Packet, own_at: u64, own_bits: u32
) -> u32:
    """Read a stack and the reporter's own hop."""
    outcome: u32 = read_hops(decoder, data, shim_at, end, packet)
    if outcome != DECODED:
        return outcome
    last: u64 = as_u64(packet.first_hop + packet.hop_count)
    if own_bits != 0 or packet.hop_count == 0 or decoder.hops[last - 1].node_id != packet.node_id:
        own = decoder.hops[last]
        if not read_hop(data, own_at, layout_of(decoder, own_bits).words, own):
            return OTHER
        own.node_id = packet.node_id
        packet.hop_count += 1
    decoder.hop_count += packet.hop_count
    return DECODED


@kernel(inline=True)
def read_hops(decoder: Decoder, data: Array[u8], shim_at: u64, end: u64, packet: Packet) -> u32:
    """Read shim, INT-MD header, and the stack in travelling order; there is room for one hop more then."""
    at: u64 = shim_at + STACK_AT
    int_end: u64 = shim_at + SHIM_BYTES + 4 * as_u64(data[shim_at + INT_WORDS_AT])
    if int_end > end or at > int_end:
        return OTHER
    head: u32 = load_be32(data, shim_at + SHIM_BYTES)
    if head >> VERSION_SHIFT != INT_VERSION:
        return OTHER
    hop_bytes: u64 = as_u64(head >> HOP_WORDS_SHIFT & HOP_WORDS_MASK) * 4
    size: u64 = hops_size(data, shim_at, int_end, hop_bytes)
    count: u64 = 0
    first: u64 = as_u64(decoder.hop_count)
    if size != 0:
        layout = layout_of(decoder, as_u32(load_be16(data, shim_at + INSTRUCTIONS_AT)))
        if hop_bytes == 0 or as_u64(layout.nbytes) > hop_bytes:
            return OTHER
        words: u32 = layout.words
        count = size // hop_bytes
        if count * hop_bytes != size:
            return OTHER
        if first + count + 1 > as_u64(decoder.hop_room):
            return FULL
        at += size
        index: u64 = first
        while index < first + count:
            at -= hop_bytes
            hop = decoder.hops[index]
            if not read_hop(data, at, words, hop) or hop.node_id == NONE32:
                return OTHER
            index += 1
    elif first == as_u64(decoder.hop_room):
        return FULL
    packet.first_hop = as_u32(first)
    packet.hop_count = as_u32(count)
    packet.missing = head & EXCEEDED
    packet.shim_at = as_u32(shim_at)
    packet.ip_bytes -= min(packet.ip_bytes, as_u32(int_end - shim_at))
    return DECODED
