"""Hours in which a centre's network is good: forecasts of measured figures, and the hours of a reference window.

All of it is pure: samples and times are arguments. `telemetry` reads the path to a centre from a collector's history;
it is not imported here, because it needs DuckDB.
"""

from __future__ import annotations

from controller.probing.hours.forecasting import Competition, forecast
from controller.probing.hours.good import good_hours
from controller.probing.hours.samples import probe_samples
from controller.probing.hours.values import (
    Cause,
    Change,
    Forecast,
    GoodHours,
    Hour,
    HourState,
    NetworkWindow,
    PathSample,
    ProbeSample,
    Sample,
)
from controller.probing.hours.windows import network_windows

__all__ = [
    "Cause",
    "Change",
    "Competition",
    "Forecast",
    "GoodHours",
    "Hour",
    "HourState",
    "NetworkWindow",
    "PathSample",
    "ProbeSample",
    "Sample",
    "forecast",
    "good_hours",
    "network_windows",
    "probe_samples",
]
