"""Means of repeated runs, without outliers.

A run is an outlier if its modified z-score, 0.6745 |x - median| / MAD, is above 3.5 (Iglewicz and Hoaglin, "How to
Detect and Handle Outliers", 1993; MAD: median absolute deviation; if it is 0, 1.2533 times the mean absolute deviation
replaces it) and it lies at least 1 % off the median: smaller differences are clock noise. Fewer than 5 runs have no
outliers, as nobody could tell. If more than a fourth would be left out, all stay: what happens so often belongs to the
centre.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

LEAST_RUNS: Final = 5
MOST_LEFT_OUT: Final = 0.25
_MOST_SCORE: Final = 3.5
_MAD_OF_NORMAL: Final = 0.6745
_MEAN_OF_NORMAL: Final = 1.253314
_NOISE: Final = 0.01


@dataclass(frozen=True, slots=True)
class Averaged:
    """The mean of repeated figures, and its 95 % confidence interval (Student's t; the mean itself for one figure).

    `kept` are the figures averaged; `left_out` the positions, in the order measured, of the others; `reasons` explain
    each of these in one line for people.
    """

    mean: float
    low: float
    high: float
    kept: tuple[float, ...]
    left_out: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()


def averaged(figures: Sequence[float]) -> Averaged | None:
    """Return the mean of repeated figures without outliers; None if there are none.

    Leaves out figures that are not finite, or negative, and says so.
    """
    broken = [index for index, figure in enumerate(figures) if not (math.isfinite(figure) and figure >= 0)]
    reasons = [f"repetition {index + 1} left out: {figures[index]} is not a measurement" for index in broken]
    sound = {index: figure for index, figure in enumerate(figures) if index not in broken}
    if not sound:
        return None
    values = np.array(list(sound.values()))
    is_out = _outliers(values)
    if 0 < MOST_LEFT_OUT * len(values) < is_out.sum():
        reasons.append(f"{is_out.sum()} of {len(values)} repetitions are outliers: all are kept")
        is_out[:] = False
    places = [index for index, out in zip(sound, is_out, strict=True) if out]
    median = float(np.median(values))
    reasons += [f"repetition {index + 1} left out: {sound[index]:.4g}, the median is {median:.4g}" for index in places]
    kept = values[~is_out]
    low, mean, high = _confidence(kept)
    return Averaged(mean, low, high, tuple(kept.tolist()), tuple(sorted(broken + places)), tuple(reasons))


def _outliers(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return a mask of the outliers."""
    if len(values) < LEAST_RUNS:
        return np.zeros(len(values), np.bool_)
    deviation = np.abs(values - np.median(values))
    scale = np.median(deviation) / _MAD_OF_NORMAL or np.mean(deviation) * _MEAN_OF_NORMAL
    is_far: np.ndarray[tuple[int], np.dtype[np.bool_]] = deviation > _MOST_SCORE * scale
    return is_far & (deviation > _NOISE * np.median(values))


def _confidence(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[float, float, float]:
    """Return the mean between the bounds of its 95 % confidence interval, which do not go below 0."""
    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    from scipy.special import stdtrit  # noqa: PLC0415 - a fifth of a daemon's start, which rarely averages

    half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / math.sqrt(len(values)))
    return max(0.0, mean - half), mean, mean + half
