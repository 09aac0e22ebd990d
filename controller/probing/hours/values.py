"""Figures over time, forecasts of them, and the hours of a day at a centre, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

HOURS: Final = 24
HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement and its time (seconds since 1970)."""

    time_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """Prediction of the next measurement by the forecaster with the least error so far.

    `error` is its mean absolute error so far; `low` and `high` bound 90 % of the measurements, or all of them if there
    are too few.
    """

    value: float
    low: float
    high: float
    error: float
    forecaster: str


@dataclass(frozen=True, slots=True)
class ProbeSample:
    """One run of a probe: its time, and the parts of kernels that use the network and of those that compute.

    None if the probe has no such kernel, or nobody measured them separately.
    """

    time_s: float
    run_time_s: float
    network_s: float | None = None
    compute_s: float | None = None


@dataclass(frozen=True, slots=True)
class PathSample:
    """Telemetry of the path to a centre's hosts."""

    time_s: float
    available_bps: float
    delay_ns: float


class HourState(StrEnum):
    """State of an hour of the day at a centre."""

    GOOD = "good"
    SLOW_NETWORK = "slow network"
    SLOW_COMPUTE = "slow compute"
    SLOW = "slow"
    """Unknown whether the network or the computing is slow."""
    UNKNOWN = "unknown"


class Cause(StrEnum):
    """Cause of a change."""

    NETWORK = "network"
    COMPUTE = "compute"
    BOTH = "network and compute"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Change:
    """From this time on runs take this factor longer than before (below 1: they are faster), and why.

    `network_factor` and `compute_factor` are of the kernels that do and do not use the network, None if these were not
    measured separately.
    """

    time_s: float
    factor: float
    cause: Cause
    network_factor: float | None = None
    compute_factor: float | None = None


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour of the day (UTC): medians of its measurements, None without any."""

    hour: int
    state: HourState
    reason: str
    samples: int = 0
    run_time_s: float | None = None
    network_s: float | None = None
    compute_s: float | None = None
    available_bps: float | None = None
    delay_ns: float | None = None
    slowdown: float | None = None
    """Factor by which transfers take longer than in good hours; None if unknown."""


@dataclass(frozen=True, slots=True)
class NetworkWindow:
    """A time in which a centre's network is forecast to be the same: nanoseconds since 1970.

    `slowdown` is the factor by which transfers take longer than in good hours. Without evidence about the hours
    (`is_known` is false) it is what is usual at the centre.
    """

    begin_ns: int
    end_ns: int
    slowdown: float = 1.0
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class GoodHours:
    """The hours of a day at a centre, 24 from midnight (UTC) on, changes in the window, and the state now."""

    hours: tuple[Hour, ...]
    changes: tuple[Change, ...] = ()
    now: HourState = HourState.UNKNOWN
    reason: str = ""
    """Reason for `now`."""
    slowdown: float | None = None
    """Factor by which transfers take longer now than in good hours; None if unknown."""
    run_time_s: Forecast | None = None
    """Forecast of the next run's time."""

    def at(self, time_s: float) -> Hour:
        """Return the hour that a time (since 1970) falls into."""
        return self.hours[int(time_s // HOUR_S) % HOURS]
