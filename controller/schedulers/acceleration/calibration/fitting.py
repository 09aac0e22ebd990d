"""Least squares on measured runs, with confidence intervals.

Each size that was measured is one observation, its error relative to the time that is expected of it (weights by
iteration): a run of a microsecond counts as much as one of a second, as decisions are about ratios. Coefficients are
not negative (Lawson and Hanson, 1974): nothing takes less time for more data. Intervals are those of the coefficients
that are left, as if they alone had been fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from controller.schedulers.acceleration.calibration.errors import CalibrationError
from controller.schedulers.acceleration.calibration.features import names_of
from controller.schedulers.acceleration.calibration.values import CONFIDENCE, Fit, Run
from dataplane.topology.values import DeviceKind, NumberFormat

_ROUNDS: Final = 20
_SAME: Final = 1e-6
"""Relative size of what is left of a column without those before it, below which it says nothing new."""

Array = NDArray[np.float64]


def fit(
    kind: str,
    runs: Sequence[Run],
    *,
    device: DeviceKind = DeviceKind.CPU,
    library: str = "",
    number_format: NumberFormat | None = None,
) -> Fit:
    """Return a kind's time as a sum of its features; CalibrationError for runs that do not tell the coefficients."""
    from scipy.optimize import nnls  # noqa: PLC0415 - who reads a file fits nothing

    names, owner = names_of(kind), f"{kind} on {device} by {library or 'nobody'}"
    if not runs:
        raise CalibrationError(f"{owner}: no run was measured")
    seconds = np.array([run.seconds for run in runs])
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise CalibrationError(f"{owner}: {seconds.min()} s is no time of a run")
    columns = np.array([[run.features[name] for name in names] for run in runs])
    most = np.abs(columns).max(axis=0)
    scale = np.where(most > 0, most, 1.0)
    told = _independent(columns / scale / seconds[:, None])
    found, expected = np.zeros(len(names)), seconds
    for _ in range(_ROUNDS):
        # Weighed by its own time a run that took too long would count for less than one that took too short a time.
        found[told] = nnls((columns / scale / expected[:, None])[:, told], seconds / expected)[0]
        expected = np.maximum((columns / scale) @ found, 1e-3 * seconds)
    design = columns / scale / expected[:, None]
    support = np.flatnonzero(found)
    degrees = len(runs) - support.size
    if degrees < 1:
        raise CalibrationError(f"{owner}: {len(runs)} sizes do not tell {support.size} coefficients")
    variance = float(np.square(seconds / expected - design @ found).sum()) / degrees
    covariance = np.zeros((len(names), len(names)))
    covariance[np.ix_(support, support)] = np.linalg.inv(design[:, support].T @ design[:, support]) * variance
    return Fit(
        device,
        library,
        kind,
        number_format,
        names,
        tuple((found / scale).tolist()),
        tuple(tuple(row) for row in (covariance / np.outer(scale, scale)).tolist()),
        float(np.sqrt(variance)),
        len(runs),
        tuple(columns.min(axis=0).tolist()),
        tuple(columns.max(axis=0).tolist()),
    )


def predicted(found: Fit, features: Sequence[float]) -> tuple[float, float, float]:
    """Return low, seconds, high of a run with these features: the interval in which a new run lies, 95 % of them."""
    # A handful of features, for each operator of each plan: arrays would take longer than the sums.
    seconds = sum(map(mul, features, found.coefficients))
    rows = (sum(map(mul, features, row)) for row in found.covariance)
    spread = sum(map(mul, features, rows)) + (found.residual * seconds) ** 2
    off = quantile(found.degrees) * math.sqrt(max(spread, 0.0))
    return max(seconds - off, 0.0), seconds, seconds + off


def intervals(found: Fit) -> tuple[tuple[float, float, float], ...]:
    """Return low, value, high of each coefficient: its confidence interval; below zero it ends at zero."""
    times = quantile(found.degrees)
    offs = [times * found.covariance[place][place] ** 0.5 for place in range(len(found.features))]
    return tuple((max(one - off, 0.0), one, one + off) for one, off in zip(found.coefficients, offs, strict=True))


@lru_cache
def quantile(degrees: int) -> float:
    """Return the two-sided quantile of Student's t with so many degrees of freedom."""
    from scipy.special import stdtrit  # noqa: PLC0415 - quicker to import than scipy.stats

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _independent(design: Array) -> NDArray[Any]:
    """Return the columns that say something that those before do not."""
    kept: list[int] = []
    for place in range(design.shape[1]):
        column = design[:, place]
        if not column.any():
            continue
        rest = column
        if kept:
            rest = column - design[:, kept] @ np.linalg.lstsq(design[:, kept], column, rcond=None)[0]
        if np.linalg.norm(rest) > _SAME * np.linalg.norm(column):
            kept.append(place)
    return np.array(kept)
