"""Criteria for a response: settling time, overshoot, steady error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.balance.errors import ResponseError

SETTLED: Final = 0.1
"""Errors below this have settled: the interval table moves no lever there."""
_LAST_SHARE: Final = 0.1
"""Share of the samples, at the end, whose mean is the steady error."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a response.

    `settle_s` is the time from the first sample after which it stayed within the band; None if it was outside at the
    end. `overshoot` is the distance beyond the target, as a share of the initial or disturbed distance. `steady_error`
    is the mean distance from the target over the last tenth, `swing` the range there, `mean_error` the mean absolute
    distance over all of it, weighted by time.
    """

    settle_s: float | None
    overshoot: float
    steady_error: float
    swing: float
    mean_error: float


def figures_of(
    times_s: Sequence[float], values: Sequence[float], target: float = 0.0, band: float = SETTLED
) -> Figures:
    """Return the figures of a response that begins at its first sample; raise ResponseError if it is empty."""
    times = np.asarray(times_s, dtype=np.float64)
    errors = np.asarray(values, dtype=np.float64) - target
    _refuse_unusable(times, errors)
    if not band > 0.0:
        raise ResponseError(f"the band is {band:g}, not above 0")
    last = errors[-max(round(_LAST_SHARE * len(errors)), 1) :]
    return Figures(
        settle_s=_settling(times, np.abs(errors) <= band),
        overshoot=_overshoot(errors),
        steady_error=float(np.mean(last)),
        swing=float(np.ptp(last)),
        mean_error=float(np.trapezoid(np.abs(errors), times) / (times[-1] - times[0])),
    )


def _refuse_unusable(times: np.ndarray, errors: np.ndarray) -> None:
    if len(times) != len(errors):
        raise ResponseError(f"a response of {len(times)} times and {len(errors)} values")
    if len(times) < 2:
        raise ResponseError("a response needs at least 2 samples")
    if not (np.all(np.isfinite(times)) and np.all(np.isfinite(errors))):
        raise ResponseError("times and values of a response must be finite")
    back = np.flatnonzero(np.diff(times) <= 0.0)
    if len(back):
        raise ResponseError(f"sample {back[0] + 2} of a response is not later than the one before it")


def _settling(times: np.ndarray, inside: np.ndarray) -> float | None:
    if not inside[-1]:
        return None
    outside = np.flatnonzero(~inside)
    return float(times[outside[-1] + 1] - times[0]) if len(outside) else 0.0


def _overshoot(errors: np.ndarray) -> float:
    """Return the largest error of the opposite sign, as a share of the largest on the initial side."""
    first = errors[np.flatnonzero(errors)[:1]]
    if not len(first):
        return 0.0
    toward = errors * math.copysign(1.0, float(first[0]))
    return max(0.0, -float(np.min(toward))) / float(np.max(toward))
