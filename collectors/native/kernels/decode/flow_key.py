"""The key of a flow, five words: its hash, and whether a cell has it."""

from __future__ import annotations

from collectors.native.structures import FlowCell
from dataplane.native import Array, kernel, u64

_FIRST = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93
_THIRD = 0xA076_1D64_78BD_642F


@kernel(inline=True)
def hash_key(key: Array[u64]) -> u64:
    """Return the hash of a flow's key."""
    mixed: u64 = (key[1] ^ (key[0] * _THIRD)) * _FIRST
    mixed = (mixed ^ (mixed >> 29) ^ key[3] ^ (key[2] * _THIRD)) * _SECOND
    mixed = (mixed ^ (mixed >> 31) ^ key[4]) * _FIRST
    return mixed ^ (mixed >> 32)


@kernel(inline=True)
def same_key(cell: FlowCell, key: Array[u64]) -> bool:
    """Return whether a cell is of a key."""
    apart: u64 = (cell.key[0] ^ key[0]) | (cell.key[1] ^ key[1]) | (cell.key[2] ^ key[2]) | (cell.key[3] ^ key[3])
    return (apart | (cell.key[4] ^ key[4])) == 0
