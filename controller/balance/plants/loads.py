"""Loads over time, in tera-operations per second for each step: step, ramp, burst, noise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def constant(steps: int, tops: float) -> Floats:
    """Return the same load in each step."""
    return np.full(steps, float(tops))


def step(steps: int, before_tops: float, after_tops: float, at: int) -> Floats:
    """Return a load that jumps at a step."""
    return np.where(np.arange(steps) < at, before_tops, after_tops).astype(np.float64)


def ramp(steps: int, before_tops: float, after_tops: float, first: int, last: int) -> Floats:
    """Return a load that goes linearly from one level to another between two steps."""
    return np.interp(np.arange(steps), (first, max(last, first + 1)), (before_tops, after_tops))


def burst(steps: int, base_tops: float, peak_tops: float, every: int, length: int) -> Floats:
    """Return a base load with a peak of this many steps at the end of each period."""
    at = np.arange(steps) % every
    return np.where(at < every - length, base_tops, peak_tops).astype(np.float64)


def noisy(load: Floats, spread: float, rng: np.random.Generator) -> Floats:
    """Return a load times normal noise around 1 with this spread, never below 0."""
    tops: Floats = np.maximum(load * (1.0 + spread * rng.standard_normal(len(load))), 0.0)
    return tops
