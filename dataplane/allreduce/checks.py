"""The check of an item: by it each worker knows that no bit of a result has changed since workers made their parts.

Each contributor sends c = k + sum of a_j x_j modulo 2^64 with its lanes x_j, where the a_j are odd numbers of 31 bits
and k is an odd number made of the job's nonce, the item and the power of two that floats were multiplied with. Switches
add checks up like lanes, so that of n contributors' result r_j the check is n k + sum of a_j r_j. A bit of a lane that
changes, changes that by a_j 2^b, which is not 0 modulo 2^64; two do so by a_i 2^b +- a_j 2^c, which is not 0 either,
for any i, j, b and c. Nor is n k the same for another n, or for the result of an item whose number differs in one bit.
The sum of lanes that stopped at a bound does not fit its check; nor need it, as nobody uses it.

A maximum is no sum. Items of maxima have the check n k, and their lanes of 16 bits are multiples of CODE, which the
greatest of them is, too: a lane in which one or two bits have changed is none (an AN code). A change before the last
contribution may be covered by that, but then the lane is less than what one worker has sent, and that worker looks.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LANES: Final = 256
CODE: Final = 199
"""What lanes of maxima are multiples of: a prime by which 2^i +- 2^j is not divisible for i, j < 16."""
STEP: Final = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: its multiples have nothing to do with each other."""
SHIFT_STEP: Final = 0xD1B54A32D192ED03
_WORD: Final = (1 << 64) - 1

WEIGHTS: Final = tuple((lane + 1) * STEP % (1 << 64) >> 33 | 1 for lane in range(LANES))
_WEIGHTS: Final = np.array(WEIGHTS, np.int64)


def check_of_one(nonce: int, item: int, shift: int = 0) -> int:
    """Return k: what each contributor's check has besides its lanes; `shift` is 0 for maxima."""
    return 2 * (nonce + item * STEP + shift * SHIFT_STEP) + 1 & _WORD


def weighted(lanes: NDArray[Any]) -> int:
    """Return the weighted sum of 256 lanes of int32, modulo 2^64."""
    with np.errstate(over="ignore"):
        return int((_WEIGHTS * lanes.astype(np.int64)).sum()) & _WORD


def is_maximum(lanes: NDArray[Any], own: NDArray[Any], most: int) -> bool:
    """Return whether lanes can be the greatest of numbers up to `most` times CODE, among them one's own."""
    is_code = lanes.astype(np.int64) % CODE == 0
    return bool((is_code & (lanes <= most * CODE) & (lanes >= own)).all())
