"""Least squares of relative errors with non-negative coefficients (Lawson and Hanson, 1974), by iteration.

Each observation's error is relative to its expected time: a run of a microsecond counts as much as one of a second,
because decisions are about ratios. More data never takes less time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_ROUNDS: Final = 20
_SETTLED: Final = 1e-9
_SAME: Final = 1e-6
"""Relative size of a column's remainder after those before it, below which the column is redundant."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class Solved:
    """Coefficients of columns over `scale`, the fitted values, and these columns over them."""

    coefficients: Array
    scale: Array
    expected: Array
    design: Array


def solve(columns: Array, seconds: Array) -> Solved:
    """Return the coefficients of columns, [observation, column], fitted to the observed seconds."""
    from scipy.optimize import nnls  # noqa: PLC0415 - not needed by readers of a file

    most = np.abs(columns).max(axis=0)
    scale = np.where(most > 0, most, 1.0)
    scaled = columns / scale
    independent = _independent(scaled / seconds[:, None])
    coefficients, expected = np.zeros(columns.shape[1]), seconds
    for _ in range(_ROUNDS):
        # Weighted by its own time, a run that was too slow would count less than one that was too fast.
        coefficients[independent] = nnls((scaled / expected[:, None])[:, independent], seconds / expected)[0]
        before, expected = expected, np.maximum(scaled @ coefficients, 1e-3 * seconds)
        if (np.abs(expected - before) <= _SETTLED * before).all():
            break
    return Solved(coefficients, scale, expected, scaled / expected[:, None])


def _independent(design: Array) -> NDArray[Any]:
    """Return the columns that are independent of those before them."""
    kept: list[int] = []
    for index in range(design.shape[1]):
        column = design[:, index]
        if not column.any():
            continue
        rest = column
        if kept:
            rest = column - design[:, kept] @ np.linalg.lstsq(design[:, kept], column, rcond=None)[0]
        if np.linalg.norm(rest) > _SAME * np.linalg.norm(column):
            kept.append(index)
    return np.array(kept)
