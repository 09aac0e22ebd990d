"""The key of a flow, five words: its hash (`dataplane.native.hashing`), and whether a cell has it."""

from __future__ import annotations

from collectors.native.structures import FlowCell
from dataplane.native import Array, kernel, u64
from dataplane.native.hashing import finish_high, part
from dataplane.native.open_addressing import LOW32

IPV4 = 4


@kernel(inline=True)
def hash_key(key: Array[u64]) -> u64:
    """Return the hash of a flow's key; its high half is the index (`dataplane.native.open_addressing`).

    The addresses' low halves share a product, so that an IPv4 key, whose other words are 0, takes only two.
    """
    state: u64 = part(key[1] << 32 | key[3] & LOW32, 1) + part(key[4], 4)
    if key[4] & 0xF != IPV4:
        state += part(key[0], 0) + part(key[2], 2) + part(key[1] >> 32 << 32 | key[3] >> 32, 3)
    return finish_high(state)


@kernel(inline=True)
def same_key(cell: FlowCell, key: Array[u64]) -> bool:
    """Return whether a cell has a key."""
    return same_words(cell.key, key)


@kernel(inline=True)
def same_words(first: Array[u64], other: Array[u64]) -> bool:
    """Return whether two keys are the same."""
    apart: u64 = (first[0] ^ other[0]) | (first[1] ^ other[1]) | (first[2] ^ other[2]) | (first[3] ^ other[3])
    return (apart | (first[4] ^ other[4])) == 0
