"""Which hours of a day are good at a centre: from probes over a reference window, and the collector's history."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from controller.schedulers.probe.hours.forecasting import forecast
from controller.schedulers.probe.hours.values import (
    HOUR_S,
    HOURS,
    GoodHours,
    Hour,
    HourState,
    PathSample,
    ProbeSample,
    Sample,
)

WINDOW_S: Final = 7 * 86_400.0
SLOWER: Final = 1.2
"""So many times the best hour's median is slow."""


def good_hours(
    samples: Sequence[ProbeSample], path: Sequence[PathSample], now_s: float, *, window_s: float = WINDOW_S
) -> GoodHours:
    """Return which hours are good by one probe's runs at one centre, and by telemetry of the way there (may be empty).

    Samples stand in order of time; those older than the window, or later than now, do not count.
    """
    recent = [one for one in samples if now_s - window_s < one.time_s <= now_s]
    seen = [one for one in path if now_s - window_s < one.time_s <= now_s]
    by_hour = [[one for one in recent if _hour_of(one.time_s) == number] for number in range(HOURS)]
    way = [[one for one in seen if _hour_of(one.time_s) == number] for number in range(HOURS)]
    best = min((median(one.run_time_s for one in found) for found in by_hour if found), default=0.0)
    hours = tuple(_hour(number, by_hour[number], way[number], best) for number in range(HOURS))
    expected = forecast([Sample(one.time_s, one.run_time_s) for one in recent], now_s)
    return GoodHours(hours, now=hours[_hour_of(now_s)].state, run_time_s=expected)


def _hour_of(time_s: float) -> int:
    return int(time_s // HOUR_S) % HOURS


def _hour(number: int, found: Sequence[ProbeSample], way: Sequence[PathSample], best: float) -> Hour:
    if not found:
        return Hour(number, HourState.UNKNOWN, "not probed in this hour")
    time_s = median(one.run_time_s for one in found)
    state = HourState.GOOD if time_s <= SLOWER * best else HourState.SLOW
    return Hour(
        number,
        state,
        f"{time_s / best:.2f} times the best hour's median",
        samples=len(found),
        run_time_s=time_s,
        available_bps=median(one.available_bps for one in way) if way else None,
        delay_ns=median(one.delay_ns for one in way) if way else None,
    )
