"""Checksums of items in machine code, equivalent to dataplane/allreduce/checks.py."""

from __future__ import annotations

from dataplane.allreduce.checks import CODE, LANES, SHIFT_STEP, STEP, WEIGHTS
from dataplane.native import (
    Array,
    as_i32,
    as_i64,
    as_u32,
    as_u64,
    constant_table,
    i32,
    i64,
    kernel,
    load_be16,
    load_be32,
    u8,
    u32,
    u64,
)

_WEIGHTS: Array[i32] = constant_table(i32, WEIGHTS)


@kernel(inline=True)
def check_of_one(nonce: u64, item: u32, shift: i32) -> u64:
    """Return the part of each contributor's check that is independent of its lanes."""
    return 2 * (nonce + as_u64(item) * STEP + as_u64(shift) * SHIFT_STEP) + 1


@kernel
def weighted(lanes: Array[u8]) -> u64:
    """Return the weighted sum of an item's lanes."""
    total: i64 = 0
    for at in range(LANES):
        total += as_i64(as_i32(load_be32(lanes, at * 4))) * as_i64(_WEIGHTS[at])
    return as_u64(total)


@kernel
def is_maximum(lanes: Array[u8], own: Array[u8], most: u32) -> bool:
    """Return whether 256 lanes can be the maximum of numbers up to `most` times CODE that include one's own."""
    wrong: u32 = 0
    for at in range(LANES):
        lane: u32 = as_u32(load_be16(lanes, at * 2))
        wrong |= lane % CODE
        wrong |= 1 if lane > most * CODE or lane < as_u32(load_be16(own, at * 2)) else 0
    return wrong == 0
