"""Layout of a hop by its bitmap, and reading of hops."""

from __future__ import annotations

from collectors.native.kernels.decode.layouts import (
    DOUBLE_WORDS,
    READ_BITS,
)
from collectors.native.structures import NONE32, NONE64, Decoder, Hop, Layout
from dataplane.native import Array, address, array_at, as_u64, kernel, popcount, spread_be32, u8, u32, u64

NO_PORT = 0xFFFF
NAME = 0xFFFF_FFFF_FFFF
NO_EGRESS = 0xFFFF_0000_0000
"""Mask of `name_of` for the egress port; all ones if the port is reported elsewhere or not at all."""


@kernel(inline=False)
def lay_out(layout: Layout, bitmap: u32) -> None:
    """Compute a bitmap's layout: the words of a hop that its values fill, one bit per word; unread values come last."""
    layout.known = 1
    layout.nbytes = 4 * (popcount(bitmap) + popcount(bitmap & DOUBLE_WORDS))
    layout.words = 0
    word: u32 = 0
    bit: u32 = 0
    while bit < READ_BITS:
        if bitmap >> (15 - bit) & 1 != 0:
            layout.words |= 1 << word
        word += 1
        if DOUBLE_WORDS >> (15 - bit) & 1 != 0:
            if bitmap >> (15 - bit) & 1 != 0:
                layout.words |= 1 << word
            word += 1
        bit += 1


@kernel(inline=True)
def layout_of(decoder: Decoder, bitmap: u32) -> Layout:
    """Return a bitmap's layout."""
    layout = decoder.layouts[as_u64(bitmap)]
    if layout.known == 0:
        lay_out(layout, bitmap)
    return layout


@kernel(inline=True)
def time_of(halves: u64) -> u64:
    """Return a time stamp given with its high word first, NONE64 for one of 2**63 ns or more."""
    stamp: u64 = halves >> 32 | halves << 32
    return NONE64 if stamp >> 63 != 0 else stamp


@kernel(inline=True)
def ingress_of(hop: Hop) -> u32:
    """Return the port that a packet came by, NONE32 where a hop does not report it."""
    ingress: u32 = hop.ports >> 16
    return hop.ingress if ingress == NO_PORT else ingress


@kernel(inline=True)
def egress_of(hop: Hop) -> u32:
    """Return the port that a packet left by, NONE32 where a hop does not report it."""
    egress: u32 = hop.ports & NO_PORT
    return hop.egress if egress == NO_PORT else egress


@kernel(inline=True)
def name_of(hop: Hop) -> u64:
    """Return node id and egress port of up to 16 bits as one number."""
    return (as_u64(hop.ports) << 32 | as_u64(hop.node_id)) & NAME


@kernel(inline=True)
def read_hop(data: Array[u8], at: u64, words: u32, hop: Hop) -> bool:
    """Read one hop's values; return False if it has no egress port."""
    spread_be32(array_at(u32, address(hop)), data, at, words)
    hop.arrived_ns = time_of(hop.arrived_ns)
    hop.left_ns = time_of(hop.left_ns)
    return egress_of(hop) != NONE32
