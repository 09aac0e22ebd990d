"""Checksum of an item, by which workers detect any changed bit in a result.

Each contributor sends c = k + sum of a_j x_j modulo 2^64 with its lanes x_j, where the a_j are odd 31-bit numbers and k
is an odd number made of the job's nonce, the item and the power of two that floats were multiplied by. Switches add
checks like lanes, so the check of n contributors' result r_j is n k + sum of a_j r_j. A changed bit of a lane changes
that sum by a_j 2^b, which is not 0 modulo 2^64; two changed bits change it by a_i 2^b +- a_j 2^c, which is not 0
either, for any i, j, b and c. Nor is n k the same for another n, or for the result of an item whose number differs in
one bit. The sum of lanes that were clamped at a bound does not fit its check; it does not need to, as nothing uses it.

A maximum is not a sum. Items of maxima have the check n k, and their 16-bit lanes are multiples of CODE, and so is
their maximum: a lane in which one or two bits have changed is no multiple (an AN code). A change before the last
contribution may be masked, but then the lane is less than what one worker has sent, and that worker checks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LANES: Final = 256
CODE: Final = 199
"""Divisor of the lanes of maxima: a prime that divides no 2^i +- 2^j for i, j < 16."""
STEP: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio; its multiples are unrelated to each other."""
SHIFT_STEP: Final = 0xD1B54A32D192ED03
_WORD: Final = (1 << 64) - 1

WEIGHTS: Final = tuple((lane + 1) * STEP % (1 << 64) >> 33 | 1 for lane in range(LANES))
_WEIGHTS: Final = np.array(WEIGHTS, np.int64)


def check_of_one(nonce: int, item: int, shift: int = 0) -> int:
    """Return k, the part of each contributor's check that is independent of its lanes; `shift` is 0 for maxima."""
    return 2 * (nonce + item * STEP + shift * SHIFT_STEP) + 1 & _WORD


def weighted(lanes: NDArray[Any]) -> int:
    """Return the weighted sum of 256 lanes of int32, modulo 2^64."""
    with np.errstate(over="ignore"):
        return int((_WEIGHTS * lanes.astype(np.int64)).sum()) & _WORD


def is_maximum(lanes: NDArray[Any], own: NDArray[Any], most: int) -> bool:
    """Return whether lanes can be the maximum of numbers up to `most` times CODE that include one's own."""
    is_code = lanes.astype(np.int64) % CODE == 0
    return bool((is_code & (lanes <= most * CODE) & (lanes >= own)).all())
