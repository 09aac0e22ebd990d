"""Where a bitmap's values stand in a hop, and reading them."""

from __future__ import annotations

from collectors.native.structures import NONE32, NONE64, Decoder, Hop, Layout
from dataplane.native import Array, as_u64, kernel, load_be32, load_be64, popcount, u8, u32, u64

DOUBLE_WORDS = 0x0E00
LEFT = 0x0400
BUFFER = 0x0080


@kernel(inline=False)
def lay_out(layout: Layout, bitmap: u32) -> None:
    """Find where a bitmap's values stand."""
    layout.known = 1
    layout.nbytes = 4 * (popcount(bitmap) + popcount(bitmap & DOUBLE_WORDS))
    layout.node = place_of(bitmap, 0)
    layout.ports = place_of(bitmap, 1)
    layout.latency = place_of(bitmap, 2)
    layout.queue = place_of(bitmap, 3)
    layout.arrived = place_of(bitmap, 4)
    layout.left = place_of(bitmap, 5)
    layout.ports2 = place_of(bitmap, 6)
    layout.tx = place_of(bitmap, 7)
    layout.buffer = place_of(bitmap, 8)
    layout.seldom = bitmap & (LEFT | BUFFER)


@kernel
def place_of(bitmap: u32, bit: u32) -> u32:
    """Return how many bytes stand before a bit's value; bit 0 is the most significant of 16."""
    if bitmap >> (15 - bit) & 1 == 0:
        return NONE32
    before: u32 = bitmap >> (16 - bit) << (16 - bit)
    return 4 * (popcount(before) + popcount(before & DOUBLE_WORDS))


@kernel(inline=True)
def layout_of(decoder: Decoder, bitmap: u32) -> Layout:
    """Return a bitmap's layout."""
    layout = decoder.layouts[as_u64(bitmap)]
    if layout.known == 0:
        lay_out(layout, bitmap)
    return layout


@kernel(inline=True)
def read_time(data: Array[u8], at: u64) -> u64:
    """Return a time stamp, all ones for one of 2**63 ns or more."""
    stamp: u64 = load_be64(data, at)
    return NONE64 if stamp >> 63 != 0 else stamp


@kernel(inline=True)
def read_occupancy(data: Array[u8], at: u64) -> u32:
    """Return the occupancy in the low 24 bits of a word."""
    occupancy: u32 = load_be32(data, at) & 0xFF_FFFF
    return NONE32 if occupancy == 0xFF_FFFF else occupancy


@kernel(inline=True)
def read_hop(data: Array[u8], at: u64, layout: Layout, hop: Hop) -> bool:
    """Read one hop's values but its node id; False where it does not say where the packet left."""
    hop.latency_ns = NONE32 if layout.latency == NONE32 else load_be32(data, at + as_u64(layout.latency))
    hop.tx_bytes = NONE32 if layout.tx == NONE32 else load_be32(data, at + as_u64(layout.tx))
    hop.queue = NONE32 if layout.queue == NONE32 else read_occupancy(data, at + as_u64(layout.queue))
    hop.arrived_ns = NONE64 if layout.arrived == NONE32 else read_time(data, at + as_u64(layout.arrived))
    hop.buffer = NONE32
    hop.left_ns = NONE64
    if layout.seldom != 0:
        hop.buffer = NONE32 if layout.buffer == NONE32 else read_occupancy(data, at + as_u64(layout.buffer))
        hop.left_ns = NONE64 if layout.left == NONE32 else read_time(data, at + as_u64(layout.left))
    ingress: u32 = 0xFFFF
    egress: u32 = 0xFFFF
    if layout.ports != NONE32:
        ports: u32 = load_be32(data, at + as_u64(layout.ports))
        ingress = ports >> 16
        egress = ports & 0xFFFF
    if ingress == 0xFFFF or egress == 0xFFFF:
        if ingress == 0xFFFF:
            ingress = NONE32 if layout.ports2 == NONE32 else load_be32(data, at + as_u64(layout.ports2))
        if egress == 0xFFFF:
            egress = NONE32 if layout.ports2 == NONE32 else load_be32(data, at + as_u64(layout.ports2) + 4)
    hop.ingress = ingress
    hop.egress = egress
    return egress != NONE32
