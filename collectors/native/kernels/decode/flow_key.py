"""The key of a flow, five words: its hash (`dataplane.native.hashing`), and whether a cell has it."""

from __future__ import annotations

from collectors.native.structures import FlowCell
from dataplane.native import Array, kernel, u64
from dataplane.native.hashing import finish_high, part
from dataplane.native.open_addressing import LOW32

IPV4 = 4


@kernel(inline=True)
def hash_key(key: Array[u64]) -> u64:
    """Return the hash of a flow's key, of which the high half finds it (`dataplane.native.open_addressing`).

    The addresses' low halves share a product, so that two are all that a key of IPv4 takes, whose other words are 0.
    """
    state: u64 = part(key[1] << 32 | key[3] & LOW32, 1) + part(key[4], 4)
    if key[4] & 0xF != IPV4:
        state += part(key[0], 0) + part(key[2], 2) + part(key[1] >> 32 << 32 | key[3] >> 32, 3)
    return finish_high(state)


@kernel(inline=True)
def same_key(cell: FlowCell, key: Array[u64]) -> bool:
    """Return whether a cell is of a key."""
    apart: u64 = (cell.key[0] ^ key[0]) | (cell.key[1] ^ key[1]) | (cell.key[2] ^ key[2]) | (cell.key[3] ^ key[3])
    return (apart | (cell.key[4] ^ key[4])) == 0
