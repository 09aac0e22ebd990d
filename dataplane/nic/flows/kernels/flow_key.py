"""Turns a frame of any length into the key that flow rules match (dataplane/nic/flows/fields.py), and its flow's hash.

tests/reference/flow_key.py is the same in plain Python. No byte at or past `length` is read. Sources:
IEEE 802.1Q, clause 9.6; RFC 791, 3.1; RFC 8200, 3 and 4; RFC 4302, 2.2; RFC 9293, 3.1.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    as_u64,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    u8,
    u32,
    u64,
)
from dataplane.native.hashing import finish, part
from dataplane.nic.flows.fields import FRAME_WORD, KEY_WORDS, MOST_EXTENSIONS, MOST_TAGS, PORTS_WORD, Layer

ETHER_IPV4 = 0x0800
ETHER_IPV6 = 0x86DD
TCP = 6
UDP = 17
HOP_BY_HOP = 0
ROUTING = 43
FRAGMENT = 44
AUTHENTICATION = 51
DESTINATION_OPTIONS = 60
EXTENSIONS = 1 << HOP_BY_HOP | 1 << ROUTING | 1 << FRAGMENT | 1 << AUTHENTICATION | 1 << DESTINATION_OPTIONS
"""Extension headers that name their next header, a bit each."""
NOT_ATOMIC = 0xFFF9
"""Mask of the offset and more-fragments flag in an IPv6 fragment header."""

LOW16 = 0xFFFF
TAG_BITS = 0xEFFF
"""Priority and identifier, without the drop-eligible bit."""


@kernel(inline=True)
def is_tag(ether_type: u64) -> bool:
    """Return whether a VLAN tag follows: 802.1Q, 802.1ad, or the older type of outer tags."""
    return ether_type == 0x8100 or ether_type == 0x88A8 or ether_type == 0x9100  # noqa: PLR1714 - kernels have no `in`


@kernel(inline=True)
def is_extension(header: u64) -> bool:
    """Return whether an IPv6 next header is an extension header that can be skipped."""
    if header <= DESTINATION_OPTIONS:
        return EXTENSIONS >> header & 1 != 0
    return False


@kernel(inline=True)
def read_transport(frame: Array[u8], at: u64, end: u64, protocol: u64, key: Array[u64]) -> None:
    """Read ports and flags of the header at `at` if it is complete."""
    if protocol == UDP:
        if at + 8 <= end:
            key[PORTS_WORD] |= as_u64(load_be32(frame, at))
            key[FRAME_WORD] |= Layer.UDP
    elif protocol == TCP and at + 20 <= end:
        key[PORTS_WORD] |= as_u64(load_be32(frame, at))
        key[FRAME_WORD] |= Layer.TCP | as_u64(frame[at + 13]) << 8


@kernel(inline=True)
def packet_end(at: u64, nbytes: u64, end: u64) -> u64:
    """Return where a packet ends, excluding padding; 0 bytes stand for a packet too long to say (RFC 2675)."""
    if nbytes == 0 or at + nbytes > end:
        return end
    return at + nbytes


@kernel(inline=True)
def read_ipv4(frame: Array[u8], at: u64, end: u64, key: Array[u64]) -> None:
    """Read an IPv4 header of at least 20 bytes, and its payload unless that is a fragment."""
    first = as_u64(frame[at])
    header_bytes = (first & 0xF) * 4
    if first >> 4 != 4 or header_bytes < 20:
        return
    protocol = as_u64(frame[at + 9])
    fragment: u64 = 1 if as_u64(load_be16(frame, at + 6)) & 0x3FFF != 0 else 0
    lifetime = as_u64(frame[at + 8])
    service = as_u64(frame[at + 1])
    key[2] = as_u64(load_be32(frame, at + 12))
    key[4] = as_u64(load_be32(frame, at + 16))
    key[PORTS_WORD] = 4 << 60 | fragment << 56 | protocol << 48 | service << 40 | lifetime << 32
    key[FRAME_WORD] |= Layer.IP
    if fragment == 0:
        packet = packet_end(at, as_u64(load_be16(frame, at + 2)), end)
        read_transport(frame, at + header_bytes, packet, protocol, key)


@kernel
def read_ipv6(frame: Array[u8], at: u64, end: u64, key: Array[u64]) -> None:
    """Read an IPv6 header of 40 bytes, its extension headers, and its payload unless that is a fragment."""
    if at + 40 > end or frame[at] >> 4 != 6:
        return
    key[2] = load_be64(frame, at + 16)
    key[3] = load_be64(frame, at + 8)
    key[4] = load_be64(frame, at + 32)
    key[5] = load_be64(frame, at + 24)
    service = as_u64(load_be32(frame, at)) >> 20 & 0xFF
    payload = as_u64(load_be16(frame, at + 4))
    lifetime = as_u64(frame[at + 7])
    header = as_u64(frame[at + 6])
    packet: u64 = end if payload == 0 else packet_end(at, payload + 40, end)
    start = at + 40
    fragment: u64 = 0
    for _ in range(MOST_EXTENSIONS):
        if not is_extension(header) or start + 8 > packet:
            break
        following = as_u64(frame[start])
        if header == FRAGMENT:
            fragment = 1 if as_u64(load_be16(frame, start + 2)) & NOT_ATOMIC != 0 else 0
            start += 8
        elif header == AUTHENTICATION:
            start += (as_u64(frame[start + 1]) + 2) * 4
        else:
            start += (as_u64(frame[start + 1]) + 1) * 8
        header = following
        if fragment != 0:
            break
    key[PORTS_WORD] = 6 << 60 | fragment << 56 | header << 48 | service << 40 | lifetime << 32
    key[FRAME_WORD] |= Layer.IP
    if fragment == 0:
        read_transport(frame, start, packet, header, key)


@kernel(inline=True)
def hash_flow(key: Array[u64]) -> u64:
    """Return the hash of a key's flow: symmetric in the two ends, and including the protocol."""
    about = key[PORTS_WORD]
    if key[FRAME_WORD] & Layer.IP == 0:
        return finish(finish(part(key[0] >> 16, 0)) + finish(part(key[1] >> 16, 0)))
    source = finish(part(key[2], 0) + part(key[3], 1) + part(about >> 16 & LOW16, 2))
    destination = finish(part(key[4], 0) + part(key[5], 1) + part(about & LOW16, 2))
    protocol: u64 = 0 if about >> 56 & 1 != 0 else about >> 48 & 0xFF
    return finish(source + destination + part(protocol, 3))


@kernel
def read_key(frame: Array[u8], length: u32, queue: u32, key: Array[u64]) -> u64:
    """Fill the words of a key from a frame, and return the hash of its flow."""
    end = as_u64(length)
    for word in range(KEY_WORDS):
        key[word] = 0
    key[FRAME_WORD] = end << 32 | (as_u64(queue) & LOW16) << 16
    if end < 14:
        return hash_flow(key)
    key[0] = load_be64(frame, 0)
    key[1] = load_be64(frame, 6)
    ether_type = key[1] & LOW16
    key[1] ^= ether_type
    key[FRAME_WORD] |= Layer.ETHERNET
    at: u64 = 14
    for tag in range(MOST_TAGS):
        if not is_tag(ether_type) or at + 4 > end:
            break
        if tag == 0:
            key[1] |= as_u64(load_be16(frame, at)) & TAG_BITS
            key[FRAME_WORD] |= Layer.VLAN
        ether_type = as_u64(load_be16(frame, at + 2))
        at += 4
    key[0] = (key[0] >> 16) << 16 | ether_type
    if ether_type == ETHER_IPV4:
        if at + 20 <= end:
            read_ipv4(frame, at, end, key)
    elif ether_type == ETHER_IPV6:
        read_ipv6(frame, at, end, key)
    return hash_flow(key)
