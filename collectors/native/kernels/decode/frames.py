"""Frames of a network device to the payloads of reports, as `dataplane.wire.packet.decode_udp_frame` reads them."""

from __future__ import annotations

from dataplane.native import (
    Array,
    as_u32,
    as_u64,
    bswap,
    kernel,
    load_be16,
    load_be32,
    load_u64,
    offset,
    prefetch,
    u8,
    u32,
    u64,
)

WHOLE = 0
OTHER = 1
MALFORMED = 2

ETHER_IPV4 = 0x0800
ETHER_IPV6 = 0x86DD
ETHER_VLAN = 0x8100
UDP = 17
FRAGMENT_OFFSET = 0x1FFF
MORE_FRAGMENTS = 0x2000
LOOPBACK = 127
"""The first octet of addresses that no cable carries (RFC 1122, 3.2.1.3)."""
PREFETCHED = 4
"""Number of frame headers to prefetch into the cache."""


@kernel
def find_payloads(  # noqa: PLR0917 - kernels have no keywords
    data: Array[u8],
    places: Array[u64],
    lengths: Array[u32],
    count: u32,
    udp_port: u32,
    malformed: Array[u32],
    frame_numbers: Array[u32],
    sources: Array[u32],
    from_cables: u32,
) -> u32:
    """Turn frames into payloads in place: those that are whole UDP datagrams to a port; return their number.

    `frame_numbers` are the frames' indices, `sources` their IPv4 source addresses; `from_cables` (not 0) says that none
    came from this machine itself. Cut, wrong or fragmented frames are added to `malformed`.
    """
    payload_count: u32 = 0
    i: u32 = 0
    while i < count:
        if i + PREFETCHED < count:
            prefetch(offset(data, places[i + PREFETCHED]))
        frame = offset(data, places[i])
        outcome: u64 = read_frame(frame, as_u64(lengths[i]), udp_port)
        if outcome == MALFORMED:
            malformed[0] += 1
        elif outcome != OTHER:
            start: u64 = outcome >> 32
            places[payload_count] = places[i] + start
            lengths[payload_count] = as_u32(outcome)
            frame_numbers[payload_count] = i
            source: u32 = source_of(frame)
            sources[payload_count] = 0 if from_cables != 0 and source >> 24 == LOOPBACK else source
            payload_count += 1
        i += 1
    return payload_count


@kernel(inline=True)
def source_of(frame: Array[u8]) -> u32:
    """Return the IPv4 address that a whole datagram came from; 0 for IPv6."""
    at: u64 = 14
    if load_be16(frame, 12) == ETHER_VLAN:
        at = 18
    source: u32 = load_be32(frame, at + 12)
    return 0 if load_be16(frame, at - 2) != ETHER_IPV4 else source


@kernel
def read_frame(frame: Array[u8], length: u64, udp_port: u32) -> u64:
    """Return the offset of a frame's UDP payload, in the high half, and its length; or a code for any other frame."""
    if length < 14:
        return MALFORMED
    ether_type: u32 = as_u32(load_be16(frame, 12))
    at: u64 = 14
    if ether_type == ETHER_VLAN:
        if length < 18:
            return MALFORMED
        ether_type = as_u32(load_be16(frame, 16))
        at = 18
    if ether_type == ETHER_IPV4:
        return read_ipv4(frame, at, length, udp_port)
    if ether_type == ETHER_IPV6:
        return read_ipv6(frame, at, length, udp_port)
    return OTHER


@kernel(inline=True)
def read_ipv4(frame: Array[u8], at: u64, length: u64, udp_port: u32) -> u64:
    """Read an IPv4 packet."""
    if at + 20 > length:
        return MALFORMED
    first: u32 = load_be32(frame, at)
    udp_at: u64 = at + as_u64(first >> 24 & 0xF) * 4
    if first >> 28 != 4 or udp_at < at + 20 or as_u64(first & 0xFFFF) < udp_at - at or udp_at > length:
        return MALFORMED
    part: u32 = as_u32(load_be16(frame, at + 6))
    if frame[at + 9] != UDP or part & FRAGMENT_OFFSET != 0:
        return OTHER
    addresses: u64 = as_u64(load_be32(frame, at + 12)) + as_u64(load_be32(frame, at + 16))
    result: u64 = read_udp(frame, udp_at, length, udp_port, addresses, 4)
    return MALFORMED if part & MORE_FRAGMENTS != 0 and result != OTHER else result


@kernel(inline=True)
def read_ipv6(frame: Array[u8], at: u64, length: u64, udp_port: u32) -> u64:
    """Read an IPv6 packet without extension headers."""
    if at + 40 > length or frame[at] >> 4 != 6:
        return MALFORMED
    if frame[at + 6] != UDP:
        return OTHER
    addresses: u64 = sum_of(frame, at + 8, 32)
    return read_udp(frame, at + 40, length, udp_port, addresses, 6)


@kernel(inline=True)
def read_udp(  # noqa: PLR0917 - kernels have no keywords
    frame: Array[u8], at: u64, length: u64, udp_port: u32, addresses: u64, version: u32
) -> u64:
    """Read a UDP datagram; `addresses` is the sum of its pseudo header's addresses."""
    if at + 8 > length:
        return MALFORMED
    size: u64 = as_u64(load_be16(frame, at + 4))
    if as_u32(load_be16(frame, at + 2)) != udp_port:
        return OTHER
    if size < 8 or at + size > length:
        return MALFORMED
    if load_be16(frame, at + 6) == 0:
        if version == 6:
            return MALFORMED
    elif folded(sum_of(frame, at, size) + addresses + UDP + size) != 0xFFFF:
        return MALFORMED
    return (at + 8) << 32 | (size - 8)


@kernel(inline=True)
def sum_of(frame: Array[u8], start: u64, size: u64) -> u64:
    """Return a sum of big-endian words of 32 bits that folds to the one's complement sum; the rest is zeros."""
    total: u64 = 0
    at: u64 = start
    end: u64 = start + size
    while at + 8 <= end:
        word: u64 = bswap(load_u64(frame, at))
        total += (word >> 32) + (word & 0xFFFF_FFFF)
        at += 8
    shift: u64 = 56
    rest: u64 = 0
    while at < end:
        rest |= as_u64(frame[at]) << shift
        shift -= 8
        at += 1
    return total + (rest >> 32) + (rest & 0xFFFF_FFFF)


@kernel(inline=True)
def folded(total: u64) -> u64:
    """Return a sum in 16 bits, carries added."""
    part: u64 = (total >> 32) + (total & 0xFFFF_FFFF)
    part = (part >> 16) + (part & 0xFFFF)
    part = (part >> 16) + (part & 0xFFFF)
    return (part >> 16) + (part & 0xFFFF)
