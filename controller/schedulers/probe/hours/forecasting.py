"""Forecasters compete, as in the Network Weather Service: each is asked before each measurement, the best so far wins.

Wolski, Spring and Hayes, "The Network Weather Service: a distributed resource performance forecasting service for
metacomputing", Future Generation Computer Systems 15, 1999.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.schedulers.probe.hours.values import Forecast, Sample


class Competition:
    """Forecasts of one series, a measurement at a time; deterministic."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._error = 0.0

    def see(self, sample: Sample) -> None:
        """Take the next measurement, later than those before."""
        if self._values:
            self._error += abs(sample.value - self._values[-1])
        self._values.append(sample.value)

    def next(self, time_s: float) -> Forecast | None:  # noqa: ARG002 - what is periodic goes by it
        """Return what a measurement at a time after all others will be; None before the first."""
        if not self._values:
            return None
        value, error = self._values[-1], self._error / max(1, len(self._values) - 1)
        return Forecast(value, min(self._values), max(self._values), error, "last value")


def forecast(samples: Sequence[Sample], at_s: float) -> Forecast | None:
    """Return what a measurement at a time after all samples will be; None of none. Samples stand in order of time."""
    competition = Competition()
    for sample in samples:
        competition.see(sample)
    return competition.next(at_s)
