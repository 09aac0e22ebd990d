"""16-bit floats to float32 and back, bit-identical to dataplane/allreduce/half_precision.py; floats are bits."""

from __future__ import annotations

from dataplane.native import Array, as_u16, as_u32, count_leading_zeros, kernel, u16, u32, u64

_INFINITE, _SIGN, _HIDDEN = 0x7F800000, 0x80000000, 1 << 23
_HALF_INFINITE, _HALF_NORMAL = 0x7C00, 0x400
_REBIAS = (127 - 15) << 23
"""Difference between the exponent biases of both formats, positioned as in a float32."""
_LEAST_NORMAL = (127 - 14) << 23
"""2^-14: below it, a float16 has no hidden bit."""
_BEYOND = 0x477FF000
"""65,520, halfway between the largest float16 and the next power of two."""


@kernel
def from_bfloat16(values: Array[u16], count: u64, wide: Array[u32]) -> None:
    """Write the floats with the given upper halves."""
    for at in range(count):
        wide[at] = as_u32(values[at]) << 16


@kernel
def to_bfloat16(wide: Array[u32], count: u64, values: Array[u16]) -> None:
    """Round to nearest, ties to even."""
    for at in range(count):
        bits: u32 = wide[at]
        rounded: u32 = bits + 0x7FFF + (bits >> 16 & 1) >> 16
        values[at] = as_u16(rounded if bits & 0x7FFFFFFF <= _INFINITE else 0x7FC0)


@kernel
def from_float16(values: Array[u16], count: u64, wide: Array[u32]) -> None:
    """Widen the values exactly."""
    for at in range(count):
        bits: u32 = as_u32(values[at])
        magnitude: u32 = bits & 0x7FFF
        above: u32 = count_leading_zeros(magnitude)
        # A subnormal gets the exponent of its leading bit; the 24th bit, which is that one, adds 1 to it.
        tiny: u32 = (133 - above << 23) + (magnitude << above - 8)
        tiny = tiny if magnitude != 0 else 0
        usual: u32 = (magnitude << 13) + _REBIAS
        widened: u32 = usual if magnitude >= _HALF_NORMAL else tiny
        widened = widened if magnitude < _HALF_INFINITE else magnitude << 13 | _INFINITE
        wide[at] = (bits & 0x8000) << 16 | widened


@kernel
def to_float16(wide: Array[u32], count: u64, values: Array[u16]) -> None:
    """Round to nearest, ties to even, infinities where out of range."""
    for at in range(count):
        bits: u32 = wide[at]
        magnitude: u32 = bits & 0x7FFFFFFF
        is_normal: bool = magnitude >= _LEAST_NORMAL
        mantissa: u32 = magnitude & (_HIDDEN - 1) | _HIDDEN
        below: u32 = min(126 - min(magnitude >> 23, 126), 31)
        drop: u32 = 13 if is_normal else below
        whole: u32 = magnitude - _REBIAS if is_normal else mantissa
        kept: u32 = whole >> drop
        rest: u32 = whole - (kept << drop)
        more: u32 = 1 if rest + (kept & 1) > as_u32(1) << drop - 1 else 0
        rounded: u32 = kept + more if magnitude < _BEYOND else _HALF_INFINITE
        rounded = rounded if magnitude <= _INFINITE else 0x7E00
        values[at] = as_u16((bits & _SIGN) >> 16 | rounded)
