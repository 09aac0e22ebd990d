"""Identity of a flow's packets, and the length of the stack that a packet carries."""

from __future__ import annotations

from collectors.native.kernels.decode.hops import layout_of
from collectors.native.kernels.decode.layouts import (
    DOMAIN_AT,
    DOMAIN_INSTRUCTIONS_AT,
    HOP_WORDS_MASK,
    HOP_WORDS_SHIFT,
    INSTRUCTIONS_AT,
    INT_MD,
    INT_VERSION,
    INT_WORDS_AT,
    OUR_DOMAIN,
    SEQUENCE,
    SHIM_BYTES,
    STACK_AT,
    TYPE_SHIFT,
)
from collectors.native.structures import Decoder, Packet
from dataplane.native import Array, array_at, as_u32, as_u64, kernel, load_be16, load_be32, u8, u64
from dataplane.wire.ipv4 import PROTOCOL_TCP

NO_INT = 1
"""Offset that stands for a packet without INT."""
IPV4 = 4


@kernel(inline=True)
def is_numbered(data: Array[u8], int_at: u64) -> bool:
    """Return whether a packet's source, in our domain, was asked to write a number."""
    return (
        load_be16(data, int_at + DOMAIN_AT) == OUR_DOMAIN
        and load_be16(data, int_at + DOMAIN_INSTRUCTIONS_AT) & SEQUENCE != 0
    )


@kernel(inline=False)
def source_bytes(data: Array[u8], int_at: u64, size: u64, hop_bytes: u64) -> u64:
    """Return the number of bytes at a stack's end that only the source has written, as domain metadata."""
    if hop_bytes == 0:
        return size
    if size >= 4 and is_numbered(data, int_at) and (size - 4) % hop_bytes == 0:
        return 4
    return size % hop_bytes


@kernel(inline=True)
def hops_size(data: Array[u8], int_at: u64, int_end: u64, hop_bytes: u64) -> u64:
    """Return the number of a stack's bytes that hops have written."""
    size: u64 = int_end - int_at - STACK_AT
    if size != 0 and load_be16(data, int_at + DOMAIN_INSTRUCTIONS_AT) != 0:
        size -= source_bytes(data, int_at, size, hop_bytes)
    return size


@kernel(inline=False)
def makes_sense(decoder: Decoder, data: Array[u8], int_at: u64, int_end: u64) -> bool:
    """Return whether the stack that a packet carries has whole hops, with all that its bitmap asks for."""
    hop_bytes: u64 = as_u64(load_be32(data, int_at + SHIM_BYTES) >> HOP_WORDS_SHIFT & HOP_WORDS_MASK) * 4
    size: u64 = hops_size(data, int_at, int_end, hop_bytes)
    if size == 0:
        return True
    if hop_bytes == 0 or size % hop_bytes != 0:
        return False
    return as_u64(layout_of(decoder, as_u32(load_be16(data, int_at + INSTRUCTIONS_AT))).nbytes) <= hop_bytes


@kernel(inline=False)
def has_whole_int(decoder: Decoder, data: Array[u8], int_at: u64, end: u64) -> bool:
    """Return whether the INT headers that a packet carries are all there and make sense."""
    int_end: u64 = int_at + SHIM_BYTES + 4 * as_u64(data[int_at + INT_WORDS_AT])
    if int_end > end or int_at + STACK_AT > int_end or data[int_at + SHIM_BYTES] >> TYPE_SHIFT != INT_VERSION:
        return False
    return data[int_at] >> TYPE_SHIFT != INT_MD or makes_sense(decoder, data, int_at, int_end)


@kernel(inline=True)
def number_of(data: Array[u8], int_at: u64, int_end: u64) -> u64:
    """Return the number that the source gave a UDP packet, 0 if it did not: MX's first word, or the stack's last."""
    if int_at == NO_INT or int_at + STACK_AT + 4 > int_end or not is_numbered(data, int_at):
        return 0
    if data[int_at] >> TYPE_SHIFT == INT_MD:
        return as_u64(load_be32(data, int_end - 4))
    return as_u64(load_be32(data, int_at + STACK_AT))


@kernel
def identity(data: Array[u8], inner_at: u64, int_at: u64, int_end: u64, packet: Packet) -> u64:
    """Return what distinguishes a flow's packets, the same at every hop: the id in `collectors.decode.reports`."""
    at: u64 = inner_at + 40
    value: u64 = 0
    if data[inner_at] >> 4 == IPV4:
        at = inner_at + as_u64(data[inner_at] & 0xF) * 4
        value = as_u64(load_be16(data, inner_at + 4) & 0x7FFF) << 48
    times: u64 = 2
    checksum_at: u64 = at + 6
    if packet.key[4] >> 8 & 0xFF == PROTOCOL_TCP:
        value |= as_u64(load_be32(data, at + 4)) << 16
        checksum_at = at + 16
        times = 1
    else:
        value |= number_of(data, int_at, int_end) << 16
    checksum: u64 = as_u64(load_be16(data, checksum_at))
    if checksum != 0 and int_at != NO_INT:
        # As the source sent it: without INT's bytes, without their number in the lengths, with the port that it had.
        checksum += as_u64(load_be16(data, at + 2)) + 0xFFFF - (packet.key[4] >> 16 & 0xFFFF)
        checksum += (int_end - int_at) * times
        while int_at < int_end:
            checksum += as_u64(load_be16(data, int_at))
            int_at += 2
        checksum %= 0xFFFF
    return value | checksum


@kernel(inline=False)
def identity_of_stack(packet: Packet) -> u64:
    """Return what distinguishes a packet with a stack from its flow's others."""
    data = array_at(u8, packet.inner)
    at: u64 = 40 if data[0] >> 4 != IPV4 else as_u64(data[0] & 0xF) * 4
    int_at: u64 = at + 8
    if packet.key[4] >> 8 & 0xFF == PROTOCOL_TCP:
        int_at = at + as_u64(data[at + 12] >> 4) * 4
    return identity(data, 0, int_at, int_at + SHIM_BYTES + 4 * as_u64(data[int_at + INT_WORDS_AT]), packet)
