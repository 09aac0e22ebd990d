"""Weights rounded to bfloat16, in the order in which products read them."""

from __future__ import annotations

from dataplane.native import Array, kernel, u32, u64

LANES = 16
_HIGH = 0xFFFF_0000


@kernel
def halve(weights: Array[u32], outputs: u64, inputs: u64, pairs: u64, packed: Array[u32]) -> None:
    """Write float32 weights [outputs, inputs] as bfloat16 in [vectors, pairs, 16]; padding is not touched.

    Two successive inputs share one word, the first in its lower half.
    """
    for output in range(outputs):
        address: u64 = output // LANES * pairs * LANES + output % LANES
        row: u64 = output * inputs
        for pair in range(inputs // 2):
            low: u32 = rounded(weights[row + 2 * pair])
            packed[address + pair * LANES] = (low >> 16) | (rounded(weights[row + 2 * pair + 1]) & _HIGH)
        if inputs % 2 == 1:
            packed[address + inputs // 2 * LANES] = rounded(weights[row + inputs - 1]) >> 16


@kernel(inline=True)
def rounded(bits: u32) -> u32:
    """Return a finite float32 whose upper half is the nearest bfloat16, ties to even; the lower half is arbitrary."""
    return bits + 0x7FFF + ((bits >> 16) & 1)
