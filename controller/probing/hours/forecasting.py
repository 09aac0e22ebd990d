"""Competition of forecasters, as in the Network Weather Service: all forecast each measurement, the best so far wins.

Wolski, Spring and Hayes, "The Network Weather Service: a distributed resource performance forecasting service for
metacomputing", Future Generation Computer Systems 15, 1999.

The best is the one with the least error relative to "the last value" over the measurements that it forecast. Older
errors count less and less, and a newcomer (a period must have passed once) starts as equal to the last value, so a
forecaster of weeks is not penalised for the days on which it was silent. Forecasters nearly as good as the best one
count, too: each is weighted by the 40th power of its skill, a seventh if it is 5 % behind. Where many are equally good
their mean is better than any of them; where one knows more than all others it alone counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.probing.hours.forecasters import Forecaster, every_forecaster
from controller.probing.hours.values import Forecast, Sample

_KEPT: Final = 0.97
_POWER: Final = 40.0
_FIRST: Final = 3.0
"""Measurements for which a newcomer is credited with the last value's error."""
_ERRORS: Final = 100
_BOUNDS: Final = 0.9


@dataclass
class _Entrant:
    """A forecaster, its forecast of the next measurement, and its record."""

    forecaster: Forecaster
    prediction: float | None = None
    error: float = 0.0
    error_of_last: float = 0.0

    def skill(self, first: float) -> float:
        """Return its error over the last value's, the smaller the better; `first` is the usual error of the latter."""
        held = _FIRST * first
        return (self.error + held) / (self.error_of_last + held) if self.error_of_last + held > 0 else 1.0

    def judge(self, value: float, error_of_last: float) -> None:
        """Compare the forecast with the measurement."""
        if self.prediction is not None:
            self.error = _KEPT * self.error + abs(value - self.prediction)
            self.error_of_last = _KEPT * self.error_of_last + error_of_last


class Competition:
    """Forecasts of one series, one measurement at a time; deterministic."""

    def __init__(self, forecasters: Callable[[], Sequence[Forecaster]] = every_forecaster) -> None:
        self._entrants = [_Entrant(forecaster) for forecaster in forecasters()]
        self._last: Sample | None = None
        self._usual = self._weight = 0.0
        self._errors: deque[float] = deque(maxlen=_ERRORS)

    def see(self, sample: Sample) -> None:
        """Take the next measurement, later than those before."""
        expected = self.next(sample.time_s)
        if expected is not None and self._last is not None:
            error_of_last = abs(sample.value - self._last.value)
            for entrant in self._entrants:
                entrant.judge(sample.value, error_of_last)
            self._usual, self._weight = _KEPT * self._usual + error_of_last, _KEPT * self._weight + 1
            self._errors.append(sample.value - expected.value)
        for entrant in self._entrants:
            entrant.forecaster.see(sample.time_s, sample.value)
        self._last = sample

    def next(self, time_s: float) -> Forecast | None:
        """Return the forecast of a measurement at a time after all others; None before the first."""
        if self._last is None:
            return None
        for entrant in self._entrants:
            entrant.prediction = entrant.forecaster.next(time_s)
        first = self._usual / self._weight if self._weight else 0.0
        ranked = [
            (entrant.skill(first), entrant.prediction, entrant.forecaster.name)
            for entrant in self._entrants
            if entrant.prediction is not None
        ]
        best, _, name = min(ranked, key=lambda entry: entry[0])
        weights = [(best / skill) ** _POWER if skill > 0 else 1.0 for skill, _, _ in ranked]
        if not self._weight:
            weights = [1.0] + [0.0] * (len(ranked) - 1)
        value = sum(weight * prediction for weight, (_, prediction, _) in zip(weights, ranked, strict=True)) / sum(
            weights
        )
        low, high = self._bounds()
        error = sum(map(abs, self._errors)) / len(self._errors) if self._errors else 0.0
        return Forecast(value, value + low, value + high, error, name)

    def said(self) -> dict[str, float | None]:
        """Return each forecaster's forecast for the time requested last; None if it had none."""
        return {entrant.forecaster.name: entrant.prediction for entrant in self._entrants}

    def _bounds(self) -> tuple[float, float]:
        """Return the bounds of the middle 90 % of the latest errors."""
        if not self._errors:
            return 0.0, 0.0
        ordered = sorted(self._errors)
        cut = int((1 - _BOUNDS) / 2 * len(ordered))
        return min(0.0, ordered[cut]), max(0.0, ordered[-1 - cut])


def forecast(samples: Sequence[Sample], at_s: float) -> Forecast | None:
    """Return the forecast of a measurement after all samples, which are in order of time; None without samples."""
    competition = Competition()
    for sample in samples:
        competition.see(sample)
    return competition.next(at_s)
