"""Figures over time, forecasts of them, and the hours of a day at a centre, as frozen values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOURS: Final = 24
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured, and when (seconds since 1970)."""

    time_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the next measurement will be, as the forecaster says that has erred least so far.

    `error` is its mean absolute error so far; `low` and `high` bound 90 % of what came, where enough has come to tell,
    else all of it.
    """

    value: float
    low: float
    high: float
    error: float
    forecaster: str


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One run of a probe: its time, and of it what kernels took that use the network, and those that compute.

    None where the probe has no such kernel, or nobody measured them apart.
    """

    time_s: float
    run_time_s: float
    network_s: float | None = None
    compute_s: float | None = None


@dataclass(frozen=True, slots=True)
class PathSample:
    """What telemetry said of the way to a centre's hosts."""

    time_s: float
    available_bps: float
    delay_ns: float


class HourState(StrEnum):
    """How an hour of the day is at a centre."""

    GOOD = "good"
    SLOW_NETWORK = "slow network"
    SLOW_COMPUTE = "slow compute"
    SLOW = "slow"
    """Nothing tells whether it is the network or the computing."""
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """What has changed."""

    NETWORK = "network"
    COMPUTE = "compute"
    BOTH = "network and compute"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """From this time on runs take so many times as long as before (below 1: they are faster), and why.

    `network_factor` and `compute_factor` are of the kernels that do and do not use the network, None where these were
    not measured apart.
    """

    time_s: float
    factor: float
    cause: Cause
    network_factor: float | None = None
    compute_factor: float | None = None


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of the day (UTC): medians of what was measured in it, None where nothing was."""

    hour: int
    state: HourState
    reason: str
    samples: int = 0
    run_time_s: float | None = None
    network_s: float | None = None
    compute_s: float | None = None
    available_bps: float | None = None
    delay_ns: float | None = None


@dataclass(frozen=True, slots=True)
class GoodHours:
    """The hours of a day at a centre, 24 from midnight (UTC) on, changes in the window, and how it is now."""

    hours: tuple[Hour, ...]
    changes: tuple[Change, ...] = ()
    now: HourState = HourState.UNKNOWN
    reason: str = ""
    """Of `now`."""
    run_time_s: Forecast | None = None
    """Of the next run."""

    def at(self, time_s: float) -> Hour:
        """Return the hour that a time (since 1970) falls into."""
        return self.hours[int(time_s // HOUR_S) % HOURS]

    def next_good_s(self, time_s: float) -> float | None:
        """Return from when on it is good, `time_s` itself if it is then; None if no hour is known to be."""
        start_s = math.floor(time_s / HOUR_S) * HOUR_S
        for step in range(HOURS):
            if self.at(start_s + step * HOUR_S).state is HourState.GOOD:
                return max(time_s, start_s + step * HOUR_S)
        return None
