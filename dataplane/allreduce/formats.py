"""Wire format of numbers: blocks of 256 floats as integers with a common exponent, which switches can add.

A block's exponent e is the least with |x| < 2^e for all its finite values, maximised over all workers (the switch takes
the maximum; it is sent times CODE, which reveals a changed bit). Each worker sends round(x 2^(30 - h - e)), with h =
ceil(log2(capacity)): no sum of `capacity` workers can overflow int32. Each value so sent is off by at most half a unit,
so the sum of n workers is within n 2^(e + h - 31) of the exact one before it is rounded to the result's own format: for
8 workers, 2^-25 of the block's bound. Float16 and bfloat16 are widened to float32 first, which is exact.

The larger the capacity, the fewer bits each worker has: with 1,024 workers each sends 20 bits and a sign, and sums are
within 2^(e - 11), which is 2^-21 of their maximum; with 65,535, the header's maximum, 14 bits, and within 2^-15.

Infinities and NaN are sent as zeros among the finite values. If a block has any, at any worker, one more item gives
their positions, by the maximum of 16 bits for +Inf and 16 for -Inf; NaN sets both, like the sum of +Inf and -Inf.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.checks import CODE

Floats = NDArray[np.float32]
Lanes = NDArray[np.int32]

BLOCK: Final = 256
"""Values that share an exponent; also the number of lanes of an item."""
BIAS: Final = 200
ZERO: Final = 0
"""A block's exponent on the wire is e + BIAS, or ZERO if all finite values are zero (-148 <= e <= 128)."""
MOST_WORKERS: Final = 0xFFFF
"""Maximum that the header can express; two levels of switches with 64 children each have 4,096."""
MOST_EXPONENT: Final = 128 + BIAS
PLUS, MINUS = CODE << 16, CODE
"""Lane values of +Inf and -Inf in an item of classes; a lane is two lanes of 16 bits, each 0 or CODE."""


def headroom(capacity: int) -> int:
    """Return the extra bits that sums of this many workers need, ceil(log2(capacity)); ValueError beyond 65,535."""
    if not 1 <= capacity <= MOST_WORKERS:
        raise ValueError(f"{capacity} workers are not 1 to {MOST_WORKERS}")
    return (capacity - 1).bit_length()


def exponents(blocks: Floats) -> tuple[NDArray[np.uint16], NDArray[np.uint16]]:
    """Return each row's exponent in wire form, and 1 for each row with an infinity or NaN, else 0."""
    finite = np.isfinite(blocks)
    greatest = np.max(np.abs(blocks), axis=1, initial=0, where=finite)
    exponent = np.frexp(greatest)[1] + BIAS
    marks = ~finite.all(axis=1)
    return np.where(greatest == 0, ZERO, exponent).astype(np.uint16), np.asarray(marks, np.uint16)


def to_lanes(blocks: Floats, agreed: NDArray[np.uint16], capacity: int) -> Lanes:
    """Return the integers to send for each row, given all workers' exponents; non-finite values become 0."""
    shift = 30 - headroom(capacity) - (agreed.astype(np.int32) - BIAS)
    exact = np.ldexp(np.where(np.isfinite(blocks), blocks, 0).astype(np.float64), shift[:, None])
    return np.rint(exact).astype(np.int32)


def from_lanes(lanes: Lanes, agreed: NDArray[np.uint16], capacity: int, divisor: int = 1) -> Floats:
    """Return the sums, each divided by `divisor` (1, or the number of workers for a mean)."""
    shift = agreed.astype(np.int32) - BIAS + headroom(capacity) - 30
    with np.errstate(over="ignore"):  # sums beyond float32 are infinite, as usual
        return (np.ldexp(lanes.astype(np.float64), shift[:, None]) / divisor).astype(np.float32)


def classes(blocks: Floats) -> Lanes:
    """Return the classes of a row's non-finite values: PLUS, MINUS, or both for NaN; their maximum is the sum's."""
    nan = np.isnan(blocks)
    return np.asarray((np.isposinf(blocks) | nan) * PLUS + (np.isneginf(blocks) | nan) * MINUS, np.int32)


def with_classes(sums: Floats, classes: Lanes) -> Floats:
    """Return the sums with non-finite values restored: NaN if any value was NaN or both infinities occurred."""
    plus, minus = classes >> 16 != 0, classes & 0xFFFF != 0
    infinite = np.where(plus & minus, np.nan, np.where(plus, np.inf, -np.inf))
    return np.where(plus | minus, infinite, sums).astype(np.float32)


def error_bound(agreed: int, workers: int, capacity: int) -> float:
    """Return the maximum error of a sum before rounding to its own format, for a block with this exponent."""
    return float(np.ldexp(float(workers), agreed - BIAS + headroom(capacity) - 31))
