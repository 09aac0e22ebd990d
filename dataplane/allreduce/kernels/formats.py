"""Blocks of floats to integers and back, bit-identical to dataplane/allreduce/formats.py; floats are their bits."""

from __future__ import annotations

from dataplane.allreduce.formats import BIAS
from dataplane.native import (
    Array,
    as_i32,
    as_u32,
    as_u64,
    count_leading_zeros,
    count_trailing_zeros,
    i32,
    kernel,
    load_be32,
    popcount,
    store_be32,
    u8,
    u32,
    u64,
)

_INFINITE = 0x7F800000
_MAGNITUDE = 0x7FFFFFFF
_SIGN = 0x80000000
_HIDDEN = 1 << 23
_LEAST_NORMAL, _MOST_NORMAL = -126, 95
"""Powers of two by which every int32 except 0 becomes a normal float."""
_MOST_DIVISOR = 1 << 16
MARK = 1 << 16
"""Added to the exponent of a block with non-finite values."""


@kernel
def block_exponent(values: Array[u32], count: u32) -> u32:
    """Return the exponent of a block on the wire, and MARK."""
    greatest: u32 = 0
    mark: u32 = 0
    for at in range(as_u64(count)):
        magnitude: u32 = values[at] & _MAGNITUDE
        is_finite: bool = magnitude < _INFINITE
        finite: u32 = magnitude if is_finite else 0
        mark = mark if is_finite else MARK
        greatest = max(greatest, finite)
    if greatest == 0:
        return mark
    if greatest < _HIDDEN:
        return mark + (BIAS - 117) - count_leading_zeros(greatest)
    return mark + (BIAS - 126) + (greatest >> 23)


@kernel
def to_lanes(values: Array[u32], count: u32, shift: i32, lanes: Array[u8]) -> None:
    """Write round(x 2^shift) of each value, ties to even, in network order; non-finite values become 0."""
    for at in range(as_u64(count)):
        bits: u32 = values[at]
        magnitude: u32 = bits & _MAGNITUDE
        exponent: u32 = magnitude >> 23
        hidden: u32 = 0 if exponent == 0 else _HIDDEN
        mantissa: u32 = magnitude & (_HIDDEN - 1) | hidden
        mantissa = mantissa if magnitude < _INFINITE else 0
        move: i32 = as_i32(max(exponent, 1)) - 150 + shift
        down: u32 = as_u32(min(max(-move, 0), 31))
        up: u32 = as_u32(max(move, 0))
        kept: u32 = mantissa >> down
        unit: u32 = as_u32(1) << down
        half: u32 = unit >> 1
        rest: u32 = mantissa & (unit - 1)
        more: u32 = 1 if rest > half or (rest == half and half != 0 and (kept & 1) != 0) else 0
        kept += more
        lane: u32 = kept << up
        store_be32(lanes, at * 4, 0 - lane if (bits & _SIGN) != 0 else lane)


@kernel
def from_lanes(lanes: Array[u8], count: u32, shift: i32, divisor: u32, values: Array[u32]) -> None:
    """Write each lane times 2^shift over `divisor` as the nearest float, ties to even."""
    if popcount(divisor) == 1:
        exact: i32 = shift - as_i32(count_trailing_zeros(divisor))
        if exact >= _LEAST_NORMAL and exact <= _MOST_NORMAL:
            to_normal_floats(lanes, count, exact, values)
            return
    elif divisor < _MOST_DIVISOR and shift - 16 >= _LEAST_NORMAL and shift <= _MOST_NORMAL:
        to_normal_quotients(lanes, count, shift, divisor, values)
        return
    for at in range(as_u64(count)):
        lane: u32 = load_be32(lanes, at * 4)
        sign: u32 = lane & _SIGN
        magnitude: u64 = as_u64(0 - lane if sign != 0 else lane)
        move: i32 = shift
        rest: u64 = 0
        if divisor > 1:
            # Use all available bits, so that the quotient has more than a float.
            room: u64 = count_leading_zeros(magnitude)
            magnitude = magnitude << room
            rest = magnitude % as_u64(divisor)
            magnitude = magnitude // as_u64(divisor)
            move -= as_i32(room)
        values[at] = sign | nearest_float(magnitude, rest != 0, move) if magnitude != 0 else 0


@kernel(inline=True)
def to_normal_floats(lanes: Array[u8], count: u32, shift: i32, values: Array[u32]) -> None:
    """Write each lane times 2^shift, where that is 0 or a normal float: the usual case, without a branch."""
    for at in range(as_u64(count)):
        lane: u32 = load_be32(lanes, at * 4)
        sign: u32 = lane & _SIGN
        magnitude: u32 = 0 - lane if sign != 0 else lane
        above: u32 = count_leading_zeros(magnitude)
        aligned: u32 = magnitude << above
        kept: u32 = aligned >> 8
        rest: u32 = aligned & 255
        more: u32 = 1 if rest + (kept & 1) > 128 else 0
        exponent: u32 = as_u32(shift + 157) - above  # less 1, which is in `kept`
        bits: u32 = sign | ((exponent << 23) + kept + more)
        values[at] = bits if magnitude != 0 else 0


@kernel(inline=True)
def to_normal_quotients(lanes: Array[u8], count: u32, shift: i32, divisor: u32, values: Array[u32]) -> None:
    """Write each lane times 2^shift over `divisor`, where that is 0 or a normal float, without a branch or a division.

    With m of 32 bits and d of 16, each with its first bit set, q = m 2^10 / d has 26 or 27 bits, so two or three more
    than a float. Times the reciprocal r = 2^46 / d rounded down, m r / 2^36 is less than 2^-4 below m 2^10 / d: q
    rounded down, or one less, which the remainder reveals.
    """
    above_divisor: u32 = count_leading_zeros(divisor) - 16
    aligned_divisor: u64 = as_u64(divisor << above_divisor)
    reciprocal: u64 = (as_u64(1) << 46) // aligned_divisor
    base: u32 = as_u32(shift + 141) + above_divisor  # less 1, which is in `kept`
    for at in range(as_u64(count)):
        lane: u32 = load_be32(lanes, at * 4)
        sign: u32 = lane & _SIGN
        magnitude: u32 = 0 - lane if sign != 0 else lane
        above: u32 = count_leading_zeros(magnitude)
        aligned: u64 = as_u64(magnitude << above)
        low: u64 = aligned * reciprocal >> 36
        left: u64 = (aligned << 10) - low * aligned_divisor
        is_less: bool = left >= aligned_divisor
        correction: u32 = 1 if is_less else 0
        rest: u64 = left - aligned_divisor if is_less else left
        sticky: u32 = 1 if rest != 0 else 0
        quotient: u32 = as_u32(low) + correction | sticky
        long: u32 = quotient >> 26
        drop: u32 = 2 + long
        kept: u32 = quotient >> drop
        over: u32 = quotient - (kept << drop)
        more: u32 = 1 if over + (kept & 1) > as_u32(1) << (drop - 1) else 0
        bits: u32 = sign | ((base + long - above << 23) + kept + more)
        values[at] = bits if magnitude != 0 else 0


@kernel(inline=True)
def nearest_float(magnitude: u64, and_more: bool, shift: i32) -> u32:
    """Return the bits of the float nearest to magnitude times 2^shift, or slightly more than that; it is not 0."""
    length: i32 = 64 - as_i32(count_leading_zeros(magnitude))
    first: i32 = length - 1 + shift
    if first > 127:
        return _INFINITE
    drop: i32 = length - 24 if first >= -126 else -149 - shift
    kept: u64 = magnitude
    if drop <= 0:
        kept = magnitude << as_u64(-drop)
    elif drop > 63:
        kept = 0
    else:
        kept = magnitude >> as_u64(drop)
        unit: u64 = as_u64(1) << as_u64(drop)
        half: u64 = unit >> 1
        rest: u64 = magnitude & (unit - 1)
        if rest > half or (rest == half and (and_more or (kept & 1) != 0)):
            kept += 1
    if first < -126:
        return as_u32(kept)
    return (as_u32(first + 126) << 23) + as_u32(kept)
