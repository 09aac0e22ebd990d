"""Columns of numbers, as they come from native memory."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.intp]

UNKNOWN: Final = -1
"""Stands for None in columns of integers, as NaN does in those of floats."""


def signed(words: NDArray[np.unsignedinteger[Any]]) -> Integers:
    """Return words as numbers; in words of 64 bits, all ones become UNKNOWN."""
    return words.astype(np.int64)


def patched(column: Integers | Numbers, places: Integers, values: Integers | Numbers) -> Integers | Numbers:
    """Return a column with other values at some places, the same object if they are the same."""
    if np.array_equal(column[places], values, equal_nan=column.dtype == np.float64):
        return column
    column = column.copy()
    column[places] = values
    return column
