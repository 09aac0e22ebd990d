"""Forecasters of one series of measurements: each sees them in order of time and predicts the next one."""

from __future__ import annotations

from controller.probing.hours.forecasters.base import Forecaster
from controller.probing.hours.forecasters.periodic import (
    DAY_S,
    WEEK_S,
    FoundPeriod,
    Periodic,
    Profile,
    Repeating,
)
from controller.probing.hours.forecasters.regression import Autoregressive
from controller.probing.hours.forecasters.smoothing import Clipped, Exponential, Trend
from controller.probing.hours.forecasters.windows import (
    AdaptiveMedian,
    LastValue,
    RunningMean,
    TrimmedMean,
    WindowMean,
    WindowMedian,
)

__all__ = ["Forecaster", "every_forecaster"]


def every_forecaster() -> tuple[Forecaster, ...]:
    """Return a new instance of each competing forecaster; the earlier of two equally good ones counts."""
    return (
        LastValue(),
        RunningMean(),
        *(WindowMean(width) for width in (5, 10, 20, 50)),
        *(WindowMedian(width) for width in (3, 5, 10, 20, 50)),
        *(TrimmedMean(width) for width in (10, 20, 50)),
        AdaptiveMedian(),
        *(Exponential(gain) for gain in (0.05, 0.1, 0.2, 0.4, 0.7)),
        *(Clipped(gain) for gain in (0.05, 0.1, 0.2, 0.4)),
        Trend(),
        Autoregressive(2),
        Autoregressive(5),
        Profile("hour of the day", DAY_S, 24),
        Profile("hours of the week", WEEK_S, 56),
        Periodic("day", DAY_S),
        Periodic("week", WEEK_S),
        Repeating("day", DAY_S),
        Repeating("week", WEEK_S),
        FoundPeriod(Periodic),
        FoundPeriod(Repeating),
    )
