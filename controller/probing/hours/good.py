"""Good hours of the day at a centre: from probes over a reference window, and the collector's history.

An hour is slow if the median of its runs is above 1.2 times the level of the good hours (the lowest quarter of the
hours' medians), and by more than three standard errors. The kernels' own times tell whether the network or the
computing is slow: those that use the network, and those that do not. For a probe without network kernels, telemetry
decides: less than 1/1.2 of the free bandwidth of good hours, or 1.2 times their delay, on the path to the centre's
hosts, is a slow network. Hours without a probe are judged by telemetry alone, and say so; without either they are
unknown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.probing.hours.forecasting import forecast
from controller.probing.hours.values import (
    HOUR_S,
    HOURS,
    Cause,
    Change,
    GoodHours,
    Hour,
    HourState,
    PathSample,
    ProbeSample,
    Sample,
)

# Sudden changes of a level in measurements, by optimal partitioning.
#
# Logarithms are cleared of single spikes (a median of three) and divided into stretches of one level each, so as to
# minimise the squares about the stretches' means plus a penalty for each stretch (Jackson and others, "An algorithm for
# optimal partitioning of data on an interval", IEEE Signal Processing Letters 12, 2005). The penalty is what a change
# of five standard errors is worth, more for long series; the scatter is that of neighbours, so that the changes
# themselves do not hide in it. Neighbouring stretches whose medians differ by less than a fifth are merged.


LEAST_FACTOR: Final = 1.2
LEAST_SIDE: Final = 3
_LEAST_ERRORS: Final = 5.0
_LEAST_SCATTER: Final = 0.01
_MAD_OF_NORMAL: Final = 0.6745

Array = npt.NDArray[np.float64]


def changes_in(values: Sequence[float]) -> tuple[int, ...]:
    """Return the indices at which a series of figures above 0 changes its level, in order."""
    if len(values) < 2 * LEAST_SIDE:
        return ()
    logs = _without_spikes(np.log(np.maximum(np.array(values, np.float64), 1e-12)))
    steps = np.abs(np.diff(logs))
    # After a median of three, neighbours differ less than the noise itself.
    scatter = max(_LEAST_SCATTER, 2.0 * float(np.median(steps)) / _MAD_OF_NORMAL / np.sqrt(2))
    penalty = scatter**2 * max(_LEAST_ERRORS**2, 8 * np.log(len(logs)))
    return _large_enough(logs, _partition(logs, penalty))


def _partition(series: Array, penalty: float) -> list[int]:
    """Return the starts of all stretches but the first."""
    number = len(series)
    sums, squares = (np.concatenate([[0.0], np.cumsum(values)]) for values in (series, series**2))
    least = np.full(number + 1, np.inf)
    least[0] = -penalty
    start = np.zeros(number + 1, np.int64)
    for end in range(LEAST_SIDE, number + 1):
        places = np.arange(end - LEAST_SIDE + 1)
        total = sums[end] - sums[places]
        costs = least[places] + squares[end] - squares[places] - total**2 / (end - places) + penalty
        start[end] = costs.argmin()
        least[end] = costs[start[end]]
    starts, end = [], number
    while (end := int(start[end])) > 0:
        starts.append(end)
    return starts[::-1]


def _large_enough(series: Array, places: list[int]) -> tuple[int, ...]:
    """Return the indices where the level changes by enough, dropping the smallest changes first."""
    while places:
        ends = [0, *places, len(series)]
        levels = [float(np.median(series[start:end])) for start, end in pairwise(ends)]
        steps = [abs(after - before) for before, after in pairwise(levels)]
        smallest = min(range(len(steps)), key=steps.__getitem__)
        if steps[smallest] >= np.log(LEAST_FACTOR):
            break
        del places[smallest]
    return tuple(places)


def _without_spikes(series: Array) -> Array:
    """Return a series in which each value is the median of itself and its neighbours; edges stay."""
    cleaned = series.copy()
    cleaned[1:-1] = np.median(np.stack([series[:-2], series[1:-1], series[2:]]), axis=0)
    cleaned[0], cleaned[-1] = np.median(series[:3]), np.median(series[-3:])
    return cleaned


WINDOW_S: Final = 7 * 86_400.0
SLOWER: Final = LEAST_FACTOR
"""Factor over the good hours' level from which an hour is slow."""
NOW_S: Final = 2 * HOUR_S
"""Age beyond which runs say nothing about the present; the hour of the day still does."""
_MOST: Final = 2048
_DAY_S: Final = HOURS * HOUR_S
_UNREPEATED: Final = 1.0
"""Doubt about hours that were seen on one day only: half of what they show is expected on the next."""
_GOOD_QUANTILE: Final = 0.25
_ERRORS: Final = 3.0
_ERROR_OF_MEDIAN: Final = 1.2533 * 1.4826
"""Standard error of a median of normal figures, in units of MAD over the root of their number."""


@dataclass(frozen=True, slots=True)
class _Level:
    """Level of one figure in good hours, and its scatter within an hour (MAD), both None if not measured."""

    good: float | None
    scatter: float
    doubt: float = math.inf
    """Variance of an hour from day to day over that between hours, of logarithms: what a day's evidence is worth."""

    def is_slow(self, values: Sequence[float]) -> bool:
        """Return whether an hour's figures are above the good level by more than chance."""
        if self.good is None or not values:
            return False
        middle = median(values)
        return middle > SLOWER * self.good and middle - self.good > _ERRORS * self.scatter / math.sqrt(len(values))

    def slowdown(self, values: Sequence[float], days: float = math.inf) -> float:
        """Return the factor of an hour's figures over the good level that is to be expected on another day.

        The fewer days it was seen on, and the more its days differ, the closer it is to 1. Below the factor from which
        an hour is slow it is 1.
        """
        if not self.good or not values:
            return 1.0
        weight = 1.0 if days == math.inf else days / (days + self.doubt)
        factor = (median(values) / self.good) ** weight
        return factor if factor >= SLOWER else 1.0


def good_hours(
    samples: Sequence[ProbeSample], path: Sequence[PathSample], now_s: float, *, window_s: float = WINDOW_S
) -> GoodHours:
    """Return the good hours by one probe's runs at one centre, and by telemetry of the path there (may be empty).

    Samples are in order of time. Ignores those older than the window or later than now, and all but the last 2,048
    runs.
    """
    recent = [sample for sample in samples if now_s - window_s < sample.time_s <= now_s][-_MOST:]
    seen = [sample for sample in path if now_s - window_s < sample.time_s <= now_s]
    judge = _Judge.of(recent, seen)
    hours = tuple(
        judge.hour(number, _of_hour(recent, number), [sample for sample in seen if _hour_of(sample.time_s) == number])
        for number in range(HOURS)
    )
    changes = _changes(recent, seen)
    since_s = max(now_s - NOW_S, changes[-1].time_s if changes else -math.inf)
    state, reason, slowdown = _now(judge, recent, seen, since_s) or _as_on_other_days(hours[_hour_of(now_s)])
    expected = forecast([Sample(sample.time_s, sample.run_time_s) for sample in recent], now_s)
    return GoodHours(hours, changes, state, reason, slowdown, expected)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Levels of all figures in good hours."""

    run_time_s: _Level
    network_s: _Level
    compute_s: _Level
    taken_bps: _Level
    """Seconds per bit at the free bandwidth: more is slower, as with times."""
    delay_ns: _Level

    @classmethod
    def of(cls, samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> _Judge:
        return cls(
            _level((sample.time_s, sample.run_time_s) for sample in samples),
            _level((sample.time_s, sample.network_s) for sample in samples if sample.network_s is not None),
            _level((sample.time_s, sample.compute_s) for sample in samples if sample.compute_s is not None),
            _level(zip((sample.time_s for sample in path), _bit_s(path), strict=True)),
            _level((sample.time_s, sample.delay_ns) for sample in path),
        )

    def hour(self, number: int, samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> Hour:
        """Return the verdict on an hour of the day."""
        state, reason = self.state(samples, path)
        times_s = [*(sample.time_s for sample in samples), *(sample.time_s for sample in path)]
        days = len({int(time_s // _DAY_S) for time_s in times_s})
        return Hour(
            number,
            state,
            reason,
            samples=len(samples),
            run_time_s=_median([sample.run_time_s for sample in samples]),
            network_s=_median(_network(samples)),
            compute_s=_median(_compute(samples)),
            available_bps=_median([sample.available_bps for sample in path]),
            delay_ns=_median([sample.delay_ns for sample in path]),
            slowdown=self.slowdown(samples, path, days),
        )

    def slowdown(self, samples: Sequence[ProbeSample], path: Sequence[PathSample], days: float) -> float | None:
        """Return the factor by which transfers are expected to take longer than in good hours; None if unknown.

        By network kernels, else by telemetry, else by run times whose parts nobody measured. `days` on which it was
        measured count as evidence of the same hour on another day; infinite for the present.
        """
        if network := _network(samples):
            return self.network_s.slowdown(network, days)
        if path:
            delays = [sample.delay_ns for sample in path]
            return max(self.taken_bps.slowdown(_bit_s(path), days), self.delay_ns.slowdown(delays, days))
        if not samples or _compute(samples):
            return None
        return self.run_time_s.slowdown([sample.run_time_s for sample in samples], days)

    def state(self, samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> tuple[HourState, str]:
        """Return the state by some runs and telemetry of the same time, and the reason."""
        way_is_slow = self.taken_bps.is_slow(_bit_s(path)) or self.delay_ns.is_slow(
            [sample.delay_ns for sample in path]
        )
        if not samples:
            if not path:
                return HourState.UNKNOWN, "not probed, no telemetry"
            slow = (
                "less bandwidth is free on the path, or delays are longer"
                if way_is_slow
                else "the path is as in good hours"
            )
            return (HourState.SLOW_NETWORK if way_is_slow else HourState.GOOD), f"by telemetry alone: {slow}"
        network, compute = _network(samples), _compute(samples)
        if self.network_s.is_slow(network) or self.compute_s.is_slow(compute):
            return self._told_apart(network, compute)
        slow = f"runs take {self._ratio(samples):.2f} times what they take in good hours"
        if not self.run_time_s.is_slow([sample.run_time_s for sample in samples]):
            return HourState.GOOD, slow
        if way_is_slow and not network:
            return HourState.SLOW_NETWORK, f"{slow}, and less bandwidth is free on the path, or delays are longer"
        return HourState.SLOW, f"{slow}: cause unknown"

    def _told_apart(self, network: Sequence[float], compute: Sequence[float]) -> tuple[HourState, str]:
        """Return which kernels add more to the time."""
        more = {
            HourState.SLOW_NETWORK: _more(network, self.network_s),
            HourState.SLOW_COMPUTE: _more(compute, self.compute_s),
        }
        state = max(more, key=lambda kind: more[kind][0])
        words = {HourState.SLOW_NETWORK: "network kernels", HourState.SLOW_COMPUTE: "compute kernels"}
        parts = (f"{words[kind]} take {ratio:.2f} times" for kind, (_, ratio) in more.items() if ratio)
        return state, f"{', '.join(parts)} what they take in good hours"

    def _ratio(self, samples: Sequence[ProbeSample]) -> float:
        middle = median(sample.run_time_s for sample in samples)
        return middle / self.run_time_s.good if self.run_time_s.good else 1.0


def _more(values: Sequence[float], level: _Level) -> tuple[float, float]:
    """Return by how many seconds, and by what factor, figures are above the good level."""
    if not values or not level.good:
        return 0.0, 0.0
    return median(values) - level.good, median(values) / level.good


def _level(figures: Iterable[tuple[float, float]]) -> _Level:
    """Return the level of figures in good hours; they are pairs of a time and a figure."""
    by_hour: defaultdict[int, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for time_s, value in figures:
        by_hour[_hour_of(time_s)][int(time_s // _DAY_S)].append(value)
    if not by_hour:
        return _Level(None, 0.0)
    hours = [[value for values in days.values() for value in values] for days in by_hour.values()]
    medians = sorted(median(values) for values in hours)
    deviations = [abs(value - median(values)) for values in hours for value in values if len(values) > 1]
    scatter = _ERROR_OF_MEDIAN * median(deviations) if deviations else 0.0
    good = float(np.quantile(medians, _GOOD_QUANTILE, method="lower"))
    return _Level(good, scatter, _doubt([[median(values) for values in days.values()] for days in by_hour.values()]))


def _doubt(hours: Sequence[Sequence[float]]) -> float:
    """Return the variance of logarithms from day to day over that between hours; each hour has a figure a day."""
    logs = [np.log(np.maximum(values, 1e-300)) for values in hours]
    repeated = [values for values in logs if len(values) > 1]
    if not repeated:
        return _UNREPEATED
    of_days = float(np.mean([values.var(ddof=1) for values in repeated]))
    if len(logs) == 1:
        return math.inf
    # Hours' means differ by chance, too.
    of_hours = float(np.var([values.mean() for values in logs], ddof=1))
    of_hours -= float(np.mean([of_days / len(values) for values in logs]))
    return of_days / of_hours if of_hours > 0 else math.inf


def _now(
    judge: _Judge, samples: Sequence[ProbeSample], path: Sequence[PathSample], since_s: float
) -> tuple[HourState, str, float | None] | None:
    """Return the state by the last measurements, the reason, and the slowdown; None if nothing is fresh."""
    fresh = [sample for sample in samples if sample.time_s >= since_s][-LEAST_SIDE:]
    way = [sample for sample in path if sample.time_s >= since_s][-LEAST_SIDE:]
    if not fresh and not way:
        return None
    state, reason = judge.state(fresh, way)
    slowdown = judge.slowdown(fresh, way, math.inf)
    return state, f"by the last {len(fresh) or len(way)} measurements: {reason}", slowdown


def _as_on_other_days(hour: Hour) -> tuple[HourState, str, float | None]:
    return hour.state, f"as at this hour of other days: {hour.reason}", hour.slowdown


def _changes(samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> tuple[Change, ...]:
    """Return sudden changes of the run times, or of the network or compute kernels' part in them."""
    places = set(changes_in([sample.run_time_s for sample in samples]))
    if all(sample.network_s is not None for sample in samples):
        places |= set(changes_in(_network(samples)))
    if all(sample.compute_s is not None for sample in samples):
        places |= set(changes_in(_compute(samples)))
    merged: list[int] = []
    for index in sorted(places):
        # The same change does not appear at exactly the same run in each of the figures.
        if not merged or index - merged[-1] >= LEAST_SIDE:
            merged.append(index)
    ends = [0, *merged, len(samples)]
    return tuple(
        _change(samples[ends[number] : index], samples[index : ends[number + 2]], path)
        for number, index in enumerate(merged)
    )


def _change(before: Sequence[ProbeSample], after: Sequence[ProbeSample], path: Sequence[PathSample]) -> Change:
    factor = median(sample.run_time_s for sample in after) / median(sample.run_time_s for sample in before)
    network, compute = _factor(_network(before), _network(after)), _factor(_compute(before), _compute(after))
    if network is None and compute is None:
        way = [sample for sample in path if before[0].time_s <= sample.time_s <= after[-1].time_s]
        then = after[0].time_s
        bits = _factor(
            _bit_s(sample for sample in way if sample.time_s < then),
            _bit_s(sample for sample in way if sample.time_s >= then),
        )
        cause = Cause.NETWORK if bits is not None and _is_change(bits) else Cause.UNKNOWN
    else:
        changed = (network is not None and _is_change(network), compute is not None and _is_change(compute))
        cause = {
            (True, True): Cause.BOTH,
            (True, False): Cause.NETWORK,
            (False, True): Cause.COMPUTE,
            (False, False): Cause.UNKNOWN,
        }[changed]
    return Change(after[0].time_s, factor, cause, network, compute)


def _is_change(factor: float) -> bool:
    return max(factor, 1 / factor) >= SLOWER


def _factor(before: Sequence[float], after: Sequence[float]) -> float | None:
    if not before or not after or min(median(before), median(after)) <= 0:
        return None
    return median(after) / median(before)


def _network(samples: Iterable[ProbeSample]) -> list[float]:
    return [sample.network_s for sample in samples if sample.network_s is not None]


def _compute(samples: Iterable[ProbeSample]) -> list[float]:
    return [sample.compute_s for sample in samples if sample.compute_s is not None]


def _bit_s(path: Iterable[PathSample]) -> list[float]:
    return [1 / max(sample.available_bps, 1.0) for sample in path]


def _of_hour(samples: Sequence[ProbeSample], number: int) -> list[ProbeSample]:
    return [sample for sample in samples if _hour_of(sample.time_s) == number]


def _hour_of(time_s: float) -> int:
    return int(time_s // HOUR_S) % HOURS


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
