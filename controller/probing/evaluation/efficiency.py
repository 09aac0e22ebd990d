"""Threshold of a probe's efficiency against unit count: the number of units up to which more of them help.

The threshold is the knee of a piecewise fit (`knees`), with a 95 % interval by bootstrap: run times are resampled from
each count's repetitions, and the curve's deviations from the fit get random signs (wild bootstrap). It is reported only
if it is determined: at least 5 counts; the knee lies between the measured counts in 95 % of the draws; and its interval
is narrower than a factor of 4. A curve whose slope is below a half from the start has its threshold at the fewest
units; one that still rises at the most units has none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.probing.evaluation.averages import Averaged, averaged

# Curves of speed against units as two straight pieces with a bend, on logarithmic scales.
#
# With x = ln n, ln speed = a + b x - d h(x), where h(x) = ln(1 + (n / c)^p) / p bends the line of slope b to slope b -
# d at n = c, the more sharply the larger p is; p = 1, b = d = 1 is Amdahl's law, c = (1 - s) / s for a serial share s;
# p without bound is the broken line. For a given bend (c, p) the rest is linear, so that least squares over all bends
# of a grid is exact: there is no starting point to choose and no local minimum. The knee is where one per cent more
# units gives half a per cent more speed; there speed-up times efficiency is largest (Eager, Zahorjan and Lazowska,
# "Speedup versus efficiency in parallel systems", IEEE Transactions on Computers 38, 1989).


Array = npt.NDArray[np.float64]

KNEE_SLOPE: Final = 0.5
_SHARPNESS: Final = (1.0, 2.0, 4.0, 32.0)
_BENDS: Final = 48


@dataclass(frozen=True, slots=True)
class Bends:
    """Every bend of the grid as a design matrix with its pseudo-inverse, for given unit counts and weights."""

    counts: Array
    weights: Array
    """Square roots, one per count."""
    bend: Array
    sharpness: Array
    design: Array
    """(bends, counts, 3), unweighted."""
    inverse: Array
    """(bends, 3, counts), of the weighted design."""

    @classmethod
    def of(cls, counts: Array, weights: Array) -> Bends:
        """Return the grid: bends between the second and the last but one of the counts, of each sharpness."""
        places = np.geomspace(counts[1], counts[-2], _BENDS) if len(counts) > 3 else counts[1:-1]
        bend, sharpness = (axis.ravel() for axis in np.meshgrid(places, np.array(_SHARPNESS), indexing="ij"))
        x = np.log(counts)
        power = sharpness[:, None] * (x[None, :] - np.log(bend)[:, None])
        bent = np.logaddexp(0.0, power) / sharpness[:, None]
        design = np.stack([np.ones_like(bent), np.broadcast_to(x, bent.shape), -bent], axis=2)
        return cls(
            counts,
            weights,
            bend,
            sharpness,
            design,
            np.asarray(np.linalg.pinv(design * weights[None, :, None]), np.float64),
        )


@dataclass(frozen=True, slots=True)
class Fits:
    """The best bend for each of several curves: each field has shape (curves,), `fitted` (curves, counts)."""

    first_slope: Array
    last_slope: Array
    bend: Array
    sharpness: Array
    error: Array
    """Weighted sum of squares."""
    fitted: Array

    def knees(self) -> Array:
        """Return the unit count at which each slope falls below a half; NaN if it never does, 0 if it starts there."""
        drop = self.first_slope - self.last_slope
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            share = (self.first_slope - KNEE_SLOPE) / drop
            knees = self.bend * (share / (1.0 - share)) ** (1.0 / self.sharpness)
        knees = np.where((share > 0) & (share < 1) & (drop > 0), knees, np.nan)
        return np.where(self.first_slope <= KNEE_SLOPE, 0.0, knees)


def fit(bends: Bends, log_speeds: Array) -> Fits:
    """Fit curves, (curves, counts) of logarithms of speeds, by weighted least squares over all bends."""
    weighted = (log_speeds * bends.weights).T
    coefficients = bends.inverse @ weighted  # (bends, 3, curves)
    fitted = bends.design @ coefficients  # (bends, counts, curves)
    errors = (((fitted - log_speeds.T) * bends.weights[:, None]) ** 2).sum(axis=1).T
    best, rows = errors.argmin(axis=1), np.arange(len(log_speeds))
    slope, drop = coefficients[best, 1, rows], coefficients[best, 2, rows]
    return Fits(slope, slope - drop, bends.bend[best], bends.sharpness[best], errors[rows, best], fitted[best, :, rows])


def straight(counts: Array, weights: Array, log_speed: Array) -> tuple[float, float, float]:
    """Return slope, its standard error, and weighted sum of squares of one straight line."""
    design = np.stack([np.ones_like(counts), np.log(counts)], axis=1) * weights[:, None]
    coefficients, *_ = np.linalg.lstsq(design, log_speed * weights)
    error = float(((design @ coefficients - log_speed * weights) ** 2).sum())
    spread = error / max(1, len(counts) - 2) * np.linalg.inv(design.T @ design)[1, 1]
    return float(coefficients[1]), float(np.sqrt(spread)), error


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Result on this many units: the mean run time, and the speed-up over the fewest units measured.

    `efficiency` is the speed-up divided by the ratio of unit counts: 1 if speed grows with the units. Bounds combine
    those of both means' 95 % confidence intervals, each at its worst.
    """

    units: int
    run_time_s: Averaged
    speed_up: float
    speed_up_low: float
    speed_up_high: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float


def curve_of(run_times_s: Mapping[int, Sequence[float]]) -> tuple[CurvePoint, ...]:
    """Return the curve of repeated run times by number of units, the fewest first; skips counts without a time."""
    measured = {units: averaged(run_times_s[units]) for units in sorted(run_times_s) if units > 0}
    means = {units: average for units, average in measured.items() if average is not None and average.mean > 0}
    if not means:
        return ()
    fewest, first = next(iter(means.items()))
    return tuple(_point(units, average, fewest, first) for units, average in means.items())


def _point(units: int, average: Averaged, fewest: int, first: Averaged) -> CurvePoint:
    speed_ups = (
        first.mean / average.mean,
        first.low / average.high,
        first.high / max(average.low, 1e-3 * average.mean),
    )
    if units == fewest:
        speed_ups = (1.0, 1.0, 1.0)
    times = units / fewest
    return CurvePoint(units, average, *speed_ups, *(speed_up / times for speed_up in speed_ups))


LEAST_COUNTS: Final = 5
_DRAWS: Final = 400
_WIDEST: Final = 4.0
_MOST_WITHOUT: Final = 0.05
_LEAST_SCATTER: Final = 0.005
"""Least standard error of a mean's logarithm: repetitions that agree better did so by chance."""


class Verdict(StrEnum):
    """Outcome of the search for a curve's threshold."""

    FOUND = "found"
    FLAT = "flat"
    """Flat from the start: more than the fewest units do not help."""
    RISING = "rising"
    """Still rising at the most units measured."""
    FEW = "few"
    """Too few counts were measured."""
    NOISY = "noisy"
    """The measurements do not determine the threshold."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """The number of units up to which more of them help, with bounds (95 %), or the reason why it is unknown.

    `units`, `low` and `high` are None unless the verdict is `found` or `flat`. `fitted` are speed-ups by the fit, one
    for each point of the curve; empty if there was no fit.
    """

    verdict: Verdict
    reason: str
    units: int | None = None
    low: float | None = None
    high: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    fitted: tuple[float, ...] = ()


def threshold_of(run_times_s: Mapping[int, Sequence[float]], *, seed: int = 0) -> Threshold:
    """Return the threshold of one probe at one centre, from its repeated run times on each number of units."""
    curve = curve_of(run_times_s)
    if len(curve) < LEAST_COUNTS:
        reason = f"{len(curve)} counts of units measured: at least {LEAST_COUNTS} needed"
        return Threshold(Verdict.FEW, reason, curve=curve)
    counts = np.array([point.units for point in curve], np.float64)
    speed, scatter = _log_speed(curve), _scatter(curve)
    weights = 1.0 / scatter
    bends = Bends.of(counts, weights)
    best = fit(bends, speed[None, :])
    fitted = tuple(np.exp(best.fitted[0] - speed[0]).tolist())
    if (plain := _unbent(counts, weights, speed, float(best.error[0]))) is not None:
        verdict, reason = plain
        least = curve[0].units if verdict is Verdict.FLAT else None
        return Threshold(verdict, reason, least, least, least, curve, fitted)
    drawn = _draws(curve, speed, best.fitted[0], scatter, np.random.default_rng(seed))
    return _judged(float(best.knees()[0]), fit(bends, drawn).knees(), curve, fitted)


def units_for(threshold: Threshold, wanted: int) -> int:
    """Return how many of the wanted, or free, units a task should get: no more than the threshold.

    Without a threshold it gets all of them: nothing indicates that fewer would do.
    """
    return wanted if threshold.units is None else min(wanted, threshold.units)


def _log_speed(curve: Sequence[CurvePoint]) -> Array:
    return np.array([-math.log(point.run_time_s.mean) for point in curve])


def _scatter(curve: Sequence[CurvePoint]) -> Array:
    """Return the standard error of each mean's logarithm; pooled, as few repetitions say little about their scatter."""
    squares = [_log_variance(point.run_time_s.kept) for point in curve if len(point.run_time_s.kept) > 1]
    pooled = float(np.mean(squares)) if squares else 0.0
    number = np.array([len(point.run_time_s.kept) for point in curve])
    return np.sqrt(np.maximum(pooled / number, _LEAST_SCATTER**2))


def _log_variance(times_s: Sequence[float]) -> float:
    return float(np.log(np.maximum(times_s, 1e-12)).var(ddof=1))


def _unbent(counts: Array, weights: Array, speed: Array, bent_error: float) -> tuple[Verdict, str] | None:
    """Return the verdict on a curve that one straight line describes as well as a bent one."""
    slope, error_of_slope, error = straight(counts, weights, speed)
    number = len(counts)
    # Akaike's criterion, corrected for few points: is the bend worth its two parameters more?
    if _criterion(error, number, 2) > _criterion(bent_error, number, 4):
        return None
    low, high = slope - 2 * error_of_slope, slope + 2 * error_of_slope
    growth = f"speed grows as the {slope:.2f}th power of the units ({low:.2f} to {high:.2f})"
    if high < KNEE_SLOPE:
        return Verdict.FLAT, f"{growth}: more than {counts[0]:.0f} hardly help"
    if low > KNEE_SLOPE:
        return Verdict.RISING, f"{growth} up to the most measured, {counts[-1]:.0f}"
    return Verdict.NOISY, f"{growth}: it is undetermined whether more units help"


def _criterion(error: float, number: int, parameters: int) -> float:
    return error + 2 * parameters * (1 + (parameters + 1) / max(1, number - parameters - 1))


def _draws(
    curve: Sequence[CurvePoint], speed: Array, fitted: Array, scatter: Array, random: np.random.Generator
) -> Array:
    """Return curves that might just as well have been measured, (draws, counts)."""
    residual = np.maximum(np.abs(speed - fitted), scatter)
    return fitted + residual * random.standard_normal((_DRAWS, len(curve)))


def _judged(knee: float, knees: Array, curve: tuple[CurvePoint, ...], fitted: tuple[float, ...]) -> Threshold:
    fewest, most = curve[0].units, curve[-1].units
    inside = knees[np.isfinite(knees) & (knees <= most)]
    if np.isnan(knee) or knee > most:
        return Threshold(Verdict.RISING, f"speed still rises at {most} units", curve=curve, fitted=fitted)
    if len(inside) < (1 - _MOST_WITHOUT) * len(knees):
        share = 1 - len(inside) / len(knees)
        reason = f"in {share:.0%} of the draws the curve does not flatten up to {most} units"
        return Threshold(Verdict.NOISY, reason, curve=curve, fitted=fitted)
    low, high = (max(float(fewest), float(bound)) for bound in np.percentile(inside, (2.5, 97.5)))
    if high > _WIDEST * low:
        reason = f"the threshold is anywhere between {low:.1f} and {high:.1f} units"
        return Threshold(Verdict.NOISY, reason, curve=curve, fitted=fitted)
    units = max(fewest, round(knee))
    if units == fewest:
        return Threshold(Verdict.FLAT, f"more than {fewest} units hardly help", units, low, high, curve, fitted)
    reason = f"speed flattens at {knee:.1f} units ({low:.1f} to {high:.1f})"
    return Threshold(Verdict.FOUND, reason, units, min(low, units), max(high, units), curve, fitted)
