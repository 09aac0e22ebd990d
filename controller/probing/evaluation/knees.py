"""Curves of speed against units as two straight pieces with a bend, on logarithmic scales.

With x = ln n, ln speed = a + b x - d h(x), where h(x) = ln(1 + (n / c)^p) / p bends the line of slope b to slope b - d
at n = c, the more sharply the larger p is; p = 1, b = d = 1 is Amdahl's law, c = (1 - s) / s for a serial share s; p
without bound is the broken line. For a given bend (c, p) the rest is linear, so that least squares over all bends of a
grid is exact: there is no starting point to choose and no local minimum. The knee is where one per cent more units
gives half a per cent more speed; there speed-up times efficiency is largest (Eager, Zahorjan and Lazowska, "Speedup
versus efficiency in parallel systems", IEEE Transactions on Computers 38, 1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

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
    found = bends.inverse @ weighted  # (bends, 3, curves)
    fitted = bends.design @ found  # (bends, counts, curves)
    errors = (((fitted - log_speeds.T) * bends.weights[:, None]) ** 2).sum(axis=1).T
    best, rows = errors.argmin(axis=1), np.arange(len(log_speeds))
    slope, drop = found[best, 1, rows], found[best, 2, rows]
    return Fits(slope, slope - drop, bends.bend[best], bends.sharpness[best], errors[rows, best], fitted[best, :, rows])


def straight(counts: Array, weights: Array, log_speed: Array) -> tuple[float, float, float]:
    """Return slope, its standard error, and weighted sum of squares of one straight line."""
    design = np.stack([np.ones_like(counts), np.log(counts)], axis=1) * weights[:, None]
    found, *_ = np.linalg.lstsq(design, log_speed * weights)
    error = float(((design @ found - log_speed * weights) ** 2).sum())
    spread = error / max(1, len(counts) - 2) * np.linalg.inv(design.T @ design)[1, 1]
    return float(found[1]), float(np.sqrt(spread)), error
