"""Periods in measurements, by autocorrelation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

_LEAST: Final = 48
_MOST_BINS: Final = 2048
_SHORTEST: Final = 4
_LEAST_CORRELATION: Final = 0.3
_WHOLE: Final = 0.1
_BOUNDS: Final = 4.0
"""Standard errors of an autocorrelation (Bartlett: 1 over the root of the number) above which a period stands out."""


def period_of(times_s: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the period of the measurements in seconds; None if nothing stands out.

    Measurements are put on a regular grid of their median distance, with outliers clipped and a slow drift removed. A
    period is the first peak of the autocorrelation that is nearly as high as the highest one, that fits at least twice
    into the time, and that comes after the correlation of neighbours has decayed.
    """
    if len(values) < _LEAST:
        return None
    grid = _regular(np.array(times_s), np.array(values))
    if grid is None:
        return None
    step_s, series = grid
    correlation = _autocorrelation(series)
    lags = np.arange(_SHORTEST, len(series) // 2)
    died = np.flatnonzero(correlation < _LEAST_CORRELATION / 2)
    if not len(died):
        return None
    is_peak = (correlation[lags] >= correlation[lags - 1]) & (correlation[lags] > correlation[lags + 1])
    peaks = lags[is_peak & (lags > died[0])]
    least = max(_LEAST_CORRELATION, _BOUNDS / np.sqrt(len(series)))
    peaks = peaks[correlation[peaks] > least]
    if not len(peaks):
        return None
    first = peaks[correlation[peaks] > 0.9 * correlation[peaks].max()][0]
    top = _top(correlation, int(first))
    # Measurements on a beat mostly have a period on it, too: a tenth of a step off is noise.
    return float(step_s * (round(top) if abs(top - round(top)) < _WHOLE else top))


def _regular(times_s: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray] | None:
    step_s = max(float(np.median(np.diff(times_s))), (times_s[-1] - times_s[0]) / _MOST_BINS)
    number = int((times_s[-1] - times_s[0]) / step_s) + 1
    if step_s <= 0 or number < _LEAST:
        return None
    middle = np.median(values)
    scale = 1.4826 * np.median(np.abs(values - middle))
    if scale == 0:
        return None
    clipped = values.clip(middle - 4 * scale, middle + 4 * scale)
    series = np.interp(times_s[0] + step_s * np.arange(number), times_s, clipped)
    line = np.polyfit(np.arange(number), series, 1)
    return step_s, series - np.polyval(line, np.arange(number))


def _autocorrelation(series: np.ndarray) -> np.ndarray:
    """Return the autocorrelation by lag, each the mean over the available pairs."""
    number = len(series)
    power = np.abs(np.fft.rfft(series, 2 * number)) ** 2
    sums = np.fft.irfft(power)[:number]
    return np.asarray(sums / (number - np.arange(number)) / (sums[0] / number))


def _top(correlation: np.ndarray, lag: int) -> float:
    """Return the lag of a peak's top between grid points, by the parabola through three of them."""
    before, at, after = correlation[lag - 1 : lag + 2]
    bend = before - 2 * at + after
    return lag if bend == 0 else lag + 0.5 * float((before - after) / bend)
