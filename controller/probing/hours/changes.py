"""Sudden changes of a level in measurements, by optimal partitioning.

Logarithms are cleared of single spikes (a median of three) and divided into stretches of one level each, so as to
minimise the squares about the stretches' means plus a penalty for each stretch (Jackson and others, "An algorithm for
optimal partitioning of data on an interval", IEEE Signal Processing Letters 12, 2005). The penalty is what a change of
five standard errors is worth, more for long series; the scatter is that of neighbours, so that the changes themselves
do not hide in it. Neighbouring stretches whose medians differ by less than a fifth are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

LEAST_FACTOR: Final = 1.2
LEAST_SIDE: Final = 3
_LEAST_ERRORS: Final = 5.0
_LEAST_SCATTER: Final = 0.01
_MAD_OF_NORMAL: Final = 0.6745

Array = npt.NDArray[np.float64]


def changes_in(values: Sequence[float]) -> tuple[int, ...]:
    """Return the indices at which a series of figures above 0 changes its level, in order."""
    if len(values) < 2 * LEAST_SIDE:
        return ()
    logs = _without_spikes(np.log(np.maximum(np.array(values, np.float64), 1e-12)))
    steps = np.abs(np.diff(logs))
    # After a median of three, neighbours differ less than the noise itself.
    scatter = max(_LEAST_SCATTER, 2.0 * float(np.median(steps)) / _MAD_OF_NORMAL / np.sqrt(2))
    penalty = scatter**2 * max(_LEAST_ERRORS**2, 8 * np.log(len(logs)))
    return _told(logs, _partition(logs, penalty))


def _partition(series: Array, penalty: float) -> list[int]:
    """Return the starts of all stretches but the first."""
    number = len(series)
    sums, squares = (np.concatenate([[0.0], np.cumsum(one)]) for one in (series, series**2))
    least = np.full(number + 1, np.inf)
    least[0] = -penalty
    start = np.zeros(number + 1, np.int64)
    for end in range(LEAST_SIDE, number + 1):
        places = np.arange(end - LEAST_SIDE + 1)
        total = sums[end] - sums[places]
        costs = least[places] + squares[end] - squares[places] - total**2 / (end - places) + penalty
        start[end] = costs.argmin()
        least[end] = costs[start[end]]
    found, end = [], number
    while (end := int(start[end])) > 0:
        found.append(end)
    return found[::-1]


def _told(series: Array, places: list[int]) -> tuple[int, ...]:
    """Return the indices where the level changes by enough, dropping the smallest changes first."""
    while places:
        ends = [0, *places, len(series)]
        levels = [float(np.median(series[one:other])) for one, other in pairwise(ends)]
        steps = [abs(after - before) for before, after in pairwise(levels)]
        smallest = min(range(len(steps)), key=steps.__getitem__)
        if steps[smallest] >= np.log(LEAST_FACTOR):
            break
        del places[smallest]
    return tuple(places)


def _without_spikes(series: Array) -> Array:
    """Return a series in which each value is the median of itself and its neighbours; edges stay."""
    found = series.copy()
    found[1:-1] = np.median(np.stack([series[:-2], series[1:-1], series[2:]]), axis=0)
    found[0], found[-1] = np.median(series[:3]), np.median(series[-3:])
    return found
