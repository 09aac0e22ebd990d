"""Finds frames that follow each other as segments of one TCP stream, so that Linux may carry them as one (GSO).

The rules are those by which Linux itself joins what it receives (GRO): split again, the frames are bit-identical. So a
train has one header except for length, sequence and identification, which grow from frame to frame; its checksums are
correct; only its last segment may be shorter, or have PSH. IPv4 without options only.
"""

from __future__ import annotations

from dataplane.native import (
    Array,
    as_u16,
    as_u32,
    as_u64,
    copy,
    kernel,
    load_be16,
    load_be32,
    load_u16,
    load_u32,
    load_u64,
    offset,
    stack_array,
    store_be16,
    store_be32,
    store_u16,
    u8,
    u16,
    u32,
    u64,
)
from dataplane.nic.layouts import ETHERNET_BYTES, ETHERTYPE_IPV4
from dataplane.nic.ports.queue import Train

IP, TCP = ETHERNET_BYTES, ETHERNET_BYTES + 20
OPTIONS = TCP + 20
CHECKSUM_OFFSET = 16
"""Offset of the checksum in a TCP header."""
_LONGEST = 65_535 - 2_048
"""Longest train as one packet, in bytes: no frame that may follow makes it exceed IPv4's length field."""
_VERSION_4, _PROTOCOL_TCP = 0x45, 6
_ALL_BUT_DONT_FRAGMENT = 0xBFFF
_PSH, _ACK_PSH = 0x08, 0x18
_RIGHT = 0xFFFF


@kernel(inline=True)
def segment_payload(frame: Array[u8], length: u32) -> u32:
    """Return the payload offset of a segment that may be part of a train, else 0."""
    if length <= OPTIONS or load_be16(frame, 12) != ETHERTYPE_IPV4 or frame[IP] != _VERSION_4:
        return 0
    if frame[IP + 9] != _PROTOCOL_TCP or as_u32(load_be16(frame, IP + 2)) + IP != length:
        return 0
    if (load_be16(frame, IP + 6) & _ALL_BUT_DONT_FRAGMENT) != 0:
        return 0
    if (frame[TCP + 12] & 0x0F) != 0 or (frame[TCP + 13] | _PSH) != _ACK_PSH:
        return 0
    start: u32 = TCP + as_u32(frame[TCP + 12] >> 4) * 4
    return start if start >= OPTIONS and start < length else 0


@kernel(inline=True)
def begin_train(train: Train, head: u64, frame: Array[u8], length: u32, start: u32) -> None:
    """Let others follow this segment, unless it ends its train."""
    train.head = head
    train.frames = 1
    train.payload_offset = start
    train.segment_bytes = length - start
    train.sequence = load_be32(frame, TCP + 4) + (length - start)
    train.identification = as_u32(load_be16(frame, IP + 4)) + 1
    train.total_length = length - IP
    train.pushed = 0
    if (frame[TCP + 13] & _PSH) != 0:
        train.head = 0


@kernel(inline=True)
def follows(train: Train, head: Array[u8], frame: Array[u8], length: u32, start: u32) -> bool:
    """Return whether a segment comes next in a train, apart from checksums."""
    if start != train.payload_offset or length - start > train.segment_bytes or train.total_length > _LONGEST:
        return False
    if load_be32(frame, TCP + 4) != train.sequence:
        return False
    if as_u32(load_be16(frame, IP + 4)) != (train.identification & 0xFFFF):
        return False
    return has_same_headers(head, frame, start)


@kernel(inline=True)
def has_same_headers(first: Array[u8], other: Array[u8], start: u32) -> bool:
    """Return whether two segments' headers differ in nothing but length, numbers, checksums and PSH."""
    # Ethernet addresses and type, IP version, type of service.
    if load_u64(first, 0) != load_u64(other, 0) or load_u64(first, 8) != load_u64(other, 8):
        return False
    # Fragment, TTL, protocol; addresses; ports.
    if load_u32(first, IP + 6) != load_u32(other, IP + 6) or load_u64(first, IP + 12) != load_u64(other, IP + 12):
        return False
    if load_u32(first, TCP) != load_u32(other, TCP) or load_u32(first, TCP + 8) != load_u32(other, TCP + 8):
        return False
    # Window, urgent pointer.
    if load_u16(first, TCP + 14) != load_u16(other, TCP + 14) or load_u16(first, TCP + 18) != load_u16(other, TCP + 18):
        return False
    offset: u32 = OPTIONS
    while offset < start:
        if load_u32(first, as_u64(offset)) != load_u32(other, as_u64(offset)):
            return False
        offset += 4
    return True


@kernel(inline=True)
def extend_train(train: Train, frame: Array[u8], length: u32) -> bool:
    """Count a segment that follows; return whether others may come after it."""
    payload: u32 = length - train.payload_offset
    train.frames += 1
    train.total_length += payload
    train.sequence += payload
    train.identification += 1
    train.pushed = as_u32(frame[TCP + 13] & _PSH)
    return payload == train.segment_bytes and train.pushed == 0


# ---- checksums


@kernel
def has_right_checksums(frame: Array[u8], length: u32) -> bool:
    """Return whether both checksums of a segment are correct."""
    if fold(add_words(frame, IP, TCP)) != _RIGHT:
        return False
    return fold(pseudo_header(frame, length - TCP) + add_words(frame, TCP, length)) == _RIGHT


@kernel(inline=True)
def pseudo_header(frame: Array[u8], tcp_bytes: u32) -> u64:
    """Return the sum over addresses, protocol and length, of words as they stand in memory."""
    words = stack_array(u8, 4)
    store_be32(words, 0, (_PROTOCOL_TCP << 16) + tcp_bytes)
    addresses = as_u64(load_u32(frame, IP + 12)) + as_u64(load_u32(frame, IP + 16))
    return addresses + as_u64(load_u32(words, 0))


@kernel
def add_words(data: Array[u8], first: u32, end: u32) -> u64:
    """Return the sum of 32-bit words as they stand in memory, the last one padded with zeros."""
    total: u64 = 0
    cursor: u64 = as_u64(first)
    words: u64 = as_u64(end - first) // 4
    for word in range(words):
        total += as_u64(load_u32(data, cursor + word * 4))
    cursor += words * 4
    left: u64 = as_u64(end) - cursor
    if left > 0:
        rest = stack_array(u8, 4)
        store_be32(rest, 0, 0)
        copy(rest, offset(data, cursor), left)
        total += as_u64(load_u32(rest, 0))
    return total


@kernel(inline=True)
def fold(total: u64) -> u32:
    """Fold a sum of words to 16 bits, in one's complement."""
    folded: u64 = (total >> 32) + (total & 0xFFFF_FFFF)
    folded = (folded >> 16) + (folded & 0xFFFF)
    folded = (folded >> 16) + (folded & 0xFFFF)
    folded = (folded >> 16) + (folded & 0xFFFF)
    return as_u32(folded)


@kernel
def write_headers(train: Train, head: Array[u8]) -> None:
    """Give the first segment the headers of the whole train; Linux completes its TCP checksum."""
    store_be16(head, IP + 2, as_u16(train.total_length))
    store_be16(head, IP + 10, 0)
    header: u16 = as_u16(fold(add_words(head, IP, TCP)))
    store_u16(head, IP + 10, ~header)
    pseudo: u16 = as_u16(fold(pseudo_header(head, train.total_length - (TCP - IP))))
    store_u16(head, TCP + CHECKSUM_OFFSET, pseudo)
    if train.pushed != 0:
        head[TCP + 13] = head[TCP + 13] | _PSH
