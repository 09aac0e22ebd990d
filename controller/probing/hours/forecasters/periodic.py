"""Forecasters of periodic series: daily, weekly, or with a period found in the measurements."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from controller.probing.hours.forecasters.regression import LeastSquares, Vector
from controller.probing.hours.forecasters.smoothing import Clipped

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


DAY_S: Final = 86_400.0
WEEK_S: Final = 7 * DAY_S
_MOST: Final = 4096
_PERIODS: Final = 6
_NEIGHBOURS: Final = ((-1.0, 0.25), (0.0, 0.5), (1.0, 0.25))
_LEAST_NEIGHBOURS: Final = 0.5
_WIDEST_GAP: Final = 1 / 8
"""Widest gap, as a part of a period, over which values are interpolated."""
_SAME: Final = 0.01
"""Relative difference up to which two periods are the same."""


class Series:
    """The last measurements, interpolated."""

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.values: list[float] = []

    def append(self, time_s: float, value: float) -> None:
        """Take a measurement; drop the older half when full."""
        if len(self.values) >= 2 * _MOST:
            del self.times_s[:-_MOST], self.values[:-_MOST]
        self.times_s.append(time_s)
        self.values.append(value)

    def at(self, time_s: float, widest_s: float) -> float | None:
        """Return the value at a time between two measurements at most this far apart; None if there are none."""
        index = bisect_left(self.times_s, time_s)
        if index == len(self.times_s):
            return None
        if self.times_s[index] == time_s:
            return self.values[index]
        if index == 0 or (apart_s := self.times_s[index] - self.times_s[index - 1]) > widest_s:
            return None
        share = (time_s - self.times_s[index - 1]) / apart_s
        return (1 - share) * self.values[index - 1] + share * self.values[index]

    def mean_since(self, time_s: float) -> float:
        """Return the mean of the measurements from a time on, without any the last measurement."""
        recent = self.values[min(bisect_left(self.times_s, time_s), len(self.values) - 1) :]
        return sum(recent) / len(recent)


class Periodic:
    """The last measurement, changed as at this phase of earlier periods, and drawn to the mean of one period.

    Changes are relative, smoothed with those just before and after, and averaged over up to six periods; the weight of
    both terms is learned. There is no forecast before a period and a measurement have passed.
    """

    _FORGETTING: Final = 0.998
    _RIDGE: Final = (8.0, 200.0)
    """The pull to the mean is learned slowly: a single day says little about it."""
    _FIRST: Final = (0.6, 0.05)
    _OLDER: Final = 0.7
    """Weight of a period relative to that of the next one."""

    def __init__(self, name: str, period_s: float) -> None:
        self.name = f"as in each {name}"
        self.period_s = period_s
        self._series = Series()
        self._model = LeastSquares(self._FIRST, forgetting=self._FORGETTING, ridge=self._RIDGE)
        self._scale = 0.0

    def next(self, time_s: float) -> float | None:
        """Return the forecast."""
        features = self._features(time_s)
        if features is None:
            return None
        last = self._series.values[-1]
        return last + abs(last) * float(features @ self._model.weights)

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement."""
        if self._series.values:
            features, change = self._features(time_s), _change(self._series.values[-1], value)
            self._scale += 0.05 * (abs(change) - self._scale) if self._scale else abs(change)
            if features is not None and self._scale > 0:
                self._model.learn(features / self._scale, change / self._scale)
        self._series.append(time_s, value)

    def _features(self, time_s: float) -> Vector | None:
        """Return the mean change at this phase, and the distance to the mean of a period."""
        if not self._series.values:
            return None
        changes = self._changes(time_s)
        if not changes:
            return None
        level = self._series.mean_since(time_s - self.period_s)
        weights = self._OLDER ** np.arange(len(changes))
        return np.array([np.average(changes, weights=weights), _change(self._series.values[-1], level)])

    def _changes(self, time_s: float) -> Sequence[float]:
        """Return the changes between the last measurement's phase and this one, of each earlier period."""
        changes = []
        for number in range(1, _PERIODS + 1):
            if (change := self._smoothed(time_s - number * self.period_s, time_s)) is None:
                break
            changes.append(change)
        return changes

    def _smoothed(self, then_s: float, time_s: float) -> float | None:
        """Return the change up to a time in an earlier period, smoothed with those just before and after."""
        step_s = time_s - self._series.times_s[-1]
        total = weight = 0.0
        for steps, share in _NEIGHBOURS:
            end = self._series.at(then_s + steps * step_s, _WIDEST_GAP * self.period_s)
            start = self._series.at(then_s + (steps - 1) * step_s, _WIDEST_GAP * self.period_s)
            if start is not None and end is not None:
                total, weight = total + share * _change(start, end), weight + share
        return total / weight if weight >= _LEAST_NEIGHBOURS else None


class Repeating:
    """The last measurement, changed as exactly one period ago; the weight of the change is learned."""

    _FORGETTING: Final = 0.99
    _RIDGE: Final = (5.0,)
    _FIRST: Final = (0.8,)

    def __init__(self, name: str, period_s: float) -> None:
        self.name = f"as a {name} ago"
        self.period_s = period_s
        self._series = Series()
        self._model = LeastSquares(self._FIRST, forgetting=self._FORGETTING, ridge=self._RIDGE)
        self._scale = 0.0

    def next(self, time_s: float) -> float | None:
        """Return the forecast."""
        change = self._then(time_s)
        if change is None:
            return None
        last = self._series.values[-1]
        return last + abs(last) * change * float(self._model.weights[0])

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement."""
        if self._series.values:
            then, change = self._then(time_s), _change(self._series.values[-1], value)
            self._scale += 0.05 * (abs(change) - self._scale) if self._scale else abs(change)
            if then is not None and self._scale > 0:
                self._model.learn(np.array([then / self._scale]), change / self._scale)
        self._series.append(time_s, value)

    def _then(self, time_s: float) -> float | None:
        if not self._series.values:
            return None
        start = self._series.at(self._series.times_s[-1] - self.period_s, _WIDEST_GAP * self.period_s)
        end = self._series.at(time_s - self.period_s, _WIDEST_GAP * self.period_s)
        return None if start is None or end is None else _change(start, end)


def _change(start: float, end: float) -> float:
    """Return a change relative to the mean of both ends, between -2 and 2; 0 for no change."""
    middle = (abs(start) + abs(end)) / 2
    return (end - start) / middle if middle > 0 else 0.0


class Profile:
    """A level, and for each part of a period the deviation of its measurements, shrunk if they are few.

    Deviations are clipped as the level's innovations are.
    """

    _SHRUNK: Final = 5.0
    _CLIP: Final = 3.0

    def __init__(self, name: str, period_s: float, parts: int) -> None:
        self.name = f"level and {name}"
        self._period_s = period_s
        self._sums, self._numbers = [0.0] * parts, [0] * parts
        self._level = Clipped(0.1)

    def next(self, time_s: float) -> float | None:
        """Return the level plus the deviation of this part of the period."""
        return None if self._level.level is None else self._level.level + self._added(time_s)

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement."""
        added = self._added(time_s)
        if self._level.level is not None and self._level.deviation > 0:
            most = self._CLIP * self._level.deviation
            part = self._part(time_s)
            self._sums[part] += min(max(value - self._level.level, -most), most)
            self._numbers[part] += 1
        self._level.see(time_s, value - added)

    def _part(self, time_s: float) -> int:
        return int(time_s % self._period_s / self._period_s * len(self._sums))

    def _added(self, time_s: float) -> float:
        part = self._part(time_s)
        return self._sums[part] / (self._numbers[part] + self._SHRUNK)


class FoundPeriod:
    """Forecaster that periodically searches the measurements for a period; silent while it finds none."""

    _EVERY: Final = 50

    def __init__(self, make: Callable[[str, float], Periodic | Repeating]) -> None:
        self.name = f"{make('period found', DAY_S).name}"
        self._make = make
        self._series = Series()
        self._number = 0
        self._inner: Periodic | Repeating | None = None

    def next(self, time_s: float) -> float | None:
        """Return the forecast."""
        return None if self._inner is None else self._inner.next(time_s)

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement; now and then look for a period."""
        self._series.append(time_s, value)
        self._number += 1
        if self._inner is not None:
            self._inner.see(time_s, value)
        if self._number % self._EVERY == 0:
            self._look()

    def _look(self) -> None:
        period_s = period_of(self._series.times_s, self._series.values)
        if period_s is None:
            self._inner = None
        elif self._inner is None or abs(period_s / self._inner.period_s - 1) > _SAME:
            self._inner = self._make("period found", period_s)
            for time_s, value in zip(self._series.times_s, self._series.values, strict=True):
                self._inner.see(time_s, value)
