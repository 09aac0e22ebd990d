"""Least squares on measured runs, with confidence intervals.

Each measured size is one observation; errors are relative, coefficients not negative. Intervals are those of the
remaining coefficients, as if only they had been fitted; a size correction counts as two coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

import numpy as np

from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.features import CONSTANT, names_of
from controller.acceleration.calibration.least_squares import Array, Solved, solve
from controller.acceleration.calibration.sizes import columns_of, uncached_of
from controller.acceleration.calibration.values import CONFIDENCE, Fit, Run, degrees_of
from dataplane.topology.values import DeviceKind, NumberFormat


def fit(
    kind: str,
    runs: Sequence[Run],
    *,
    device: DeviceKind = DeviceKind.CPU,
    library: str = "",
    number_format: NumberFormat | None = None,
    cached_bytes: float | None = None,
) -> Fit:
    """Return a kind's time as a sum of its features; raise CalibrationError if runs do not determine the coefficients.

    `cached_bytes` is the size of the device's caches: larger sizes are corrected if that makes the runs likelier.
    """
    owner = f"{kind} on {device} by {library or 'no library'}"
    if not runs:
        raise CalibrationError(f"{owner}: no measured runs")
    seconds = np.array([run.seconds for run in runs])
    if not (np.isfinite(seconds).all() and (seconds > 0).all()):
        raise CalibrationError(f"{owner}: invalid run time of {seconds.min()} s")
    uncached = None if cached_bytes is None else uncached_of(kind, runs, cached_bytes)
    solved = solve(columns_of(kind, runs, uncached), seconds)
    coefficients = tuple((solved.coefficients / solved.scale).tolist())
    degrees = degrees_of(len(runs), coefficients, is_corrected=uncached is not None)
    if degrees < 1:
        wanted = int(np.count_nonzero(solved.coefficients))
        raise CalibrationError(f"{owner}: {len(runs)} sizes do not determine {wanted} coefficients")
    variance, covariance = _spread(solved, seconds, degrees)
    columns = columns_of(kind, runs)
    return Fit(
        device,
        library,
        kind,
        number_format,
        names_of(kind),
        coefficients,
        tuple(tuple(row) for row in covariance.tolist()),
        math.sqrt(variance),
        len(runs),
        tuple(columns.min(axis=0).tolist()),
        tuple(columns.max(axis=0).tolist()),
        uncached,
    )


def _spread(solved: Solved, seconds: Array, degrees: int) -> tuple[float, Array]:
    """Return the variance of relative errors, and the covariance of the coefficients."""
    design, support = solved.design, np.flatnonzero(solved.coefficients)
    variance = float(np.square(seconds / solved.expected - design @ solved.coefficients).sum()) / degrees
    covariance = np.zeros((design.shape[1], design.shape[1]))
    covariance[np.ix_(support, support)] = np.linalg.inv(design[:, support].T @ design[:, support]) * variance
    return variance, covariance / np.outer(solved.scale, solved.scale)


def predicted(fit: Fit, features: Sequence[float], touched_bytes: float = 0.0) -> tuple[float, float, float]:
    """Return low, seconds, high of a run with these features: the interval for a new run with 95 % confidence.

    `touched_bytes` are the bytes that the run reads and writes, for fits with a correction beyond caches.
    """
    if fit.uncached is not None and (factor := fit.uncached.factor(touched_bytes)) > 1:
        features = [x if name == CONSTANT else x * factor for name, x in zip(fit.features, features, strict=True)]
    # Only a few features, but for each operator of each plan: arrays would be slower than these sums.
    seconds = sum(map(mul, features, fit.coefficients))
    spread = sum(x * sum(map(mul, features, row)) for x, row in zip(features, fit.covariance, strict=True) if x)
    spread += (fit.residual * seconds) ** 2
    off = quantile(fit.degrees) * math.sqrt(max(spread, 0.0))
    return max(seconds - off, 0.0), seconds, seconds + off


def intervals(fit: Fit) -> tuple[tuple[float, float, float], ...]:
    """Return low, value, high of each coefficient: its confidence interval, cut off at zero."""
    times = quantile(fit.degrees)
    offs = [times * fit.covariance[index][index] ** 0.5 for index in range(len(fit.features))]
    return tuple(
        (max(coefficient - off, 0.0), coefficient, coefficient + off)
        for coefficient, off in zip(fit.coefficients, offs, strict=True)
    )


@lru_cache
def quantile(degrees: int) -> float:
    """Return the two-sided quantile of Student's t with the given degrees of freedom."""
    from scipy.special import stdtrit  # noqa: PLC0415 - quicker to import than scipy.stats

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
