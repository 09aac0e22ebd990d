"""When a centre's network is good: forecasts of measured figures, and the hours of a reference window.

All of it is pure: samples and times are arguments.
"""

from __future__ import annotations

from controller.schedulers.probe.hours.forecasting import Competition, forecast
from controller.schedulers.probe.hours.good import good_hours
from controller.schedulers.probe.hours.values import (
    Cause,
    Change,
    Forecast,
    GoodHours,
    Hour,
    HourState,
    PathSample,
    ProbeSample,
    Sample,
)

__all__ = [
    "Cause",
    "Change",
    "Competition",
    "Forecast",
    "GoodHours",
    "Hour",
    "HourState",
    "PathSample",
    "ProbeSample",
    "Sample",
    "forecast",
    "good_hours",
]
