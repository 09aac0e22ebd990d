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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
_GOOD_QUANTILE: Final = 0.25
_ERRORS: Final = 3.0
_ERROR_OF_MEDIAN: Final = 1.2533 * 1.4826
"""Standard error of a median of normal figures, in units of MAD over the root of their number."""


@dataclass(frozen=True, slots=True)
class _Level:
    """Level of one figure in good hours, and its scatter within an hour (MAD), both None if not measured."""

    good: float | None
    scatter: float

    def is_slow(self, values: Sequence[float]) -> bool:
        """Return whether an hour's figures are above the good level by more than chance."""
        if self.good is None or not values:
            return False
        middle = median(values)
        return middle > SLOWER * self.good and middle - self.good > _ERRORS * self.scatter / math.sqrt(len(values))

    def slowdown(self, values: Sequence[float]) -> float:
        """Return the factor of figures over the good level, or 1 if they are not above it by more than chance."""
        return median(values) / self.good if self.good and self.is_slow(values) else 1.0


@dataclass(frozen=True, slots=True)
class _Verdict:
    """State of some measurements, its reason, and the factor by which transfers take longer than in good hours."""

    state: HourState
    reason: str
    slowdown: float | None


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
    verdict = _now(judge, recent, seen, since_s) or _as_on_other_days(hours[_hour_of(now_s)])
    expected = forecast([Sample(sample.time_s, sample.run_time_s) for sample in recent], now_s)
    return GoodHours(hours, changes, verdict.state, verdict.reason, verdict.slowdown, expected)


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
        by_hour = [_of_hour(samples, number) for number in range(HOURS)]
        ways = [[sample for sample in path if _hour_of(sample.time_s) == number] for number in range(HOURS)]
        return cls(
            _level([sample.run_time_s for sample in of_hour] for of_hour in by_hour),
            _level(_network(of_hour) for of_hour in by_hour),
            _level(_compute(of_hour) for of_hour in by_hour),
            _level(_bit_s(way) for way in ways),
            _level([sample.delay_ns for sample in way] for way in ways),
        )

    def hour(self, number: int, samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> Hour:
        """Return the verdict on an hour of the day."""
        verdict = self.verdict(samples, path)
        return Hour(
            number,
            verdict.state,
            verdict.reason,
            samples=len(samples),
            run_time_s=_median([sample.run_time_s for sample in samples]),
            network_s=_median(_network(samples)),
            compute_s=_median(_compute(samples)),
            available_bps=_median([sample.available_bps for sample in path]),
            delay_ns=_median([sample.delay_ns for sample in path]),
            slowdown=verdict.slowdown,
        )

    def verdict(self, samples: Sequence[ProbeSample], path: Sequence[PathSample]) -> _Verdict:
        """Return the state by some runs and telemetry of the same time, the reason, and transfers' slowdown."""
        path_slowdown = max(
            self.taken_bps.slowdown(_bit_s(path)), self.delay_ns.slowdown([sample.delay_ns for sample in path])
        )
        path_is_slow = path_slowdown > 1
        if not samples:
            if not path:
                return _Verdict(HourState.UNKNOWN, "not probed, no telemetry", None)
            slow = (
                "less bandwidth is free on the path, or delays are longer"
                if path_is_slow
                else "the path is as in good hours"
            )
            state = HourState.SLOW_NETWORK if path_is_slow else HourState.GOOD
            return _Verdict(state, f"by telemetry alone: {slow}", path_slowdown)
        network, compute = _network(samples), _compute(samples)
        if self.network_s.is_slow(network) or self.compute_s.is_slow(compute):
            state, reason = self._told_apart(network, compute)
            return _Verdict(state, reason, self.network_s.slowdown(network))
        run_times = [sample.run_time_s for sample in samples]
        slow = f"runs take {self._ratio(samples):.2f} times what they take in good hours"
        if not self.run_time_s.is_slow(run_times):
            return _Verdict(HourState.GOOD, slow, 1.0)
        if path_is_slow and not network:
            reason = f"{slow}, and less bandwidth is free on the path, or delays are longer"
            return _Verdict(HourState.SLOW_NETWORK, reason, path_slowdown)
        # Measured network kernels are as fast as in good hours; without them the network may be the cause.
        slowdown = 1.0 if network else self.run_time_s.slowdown(run_times)
        return _Verdict(HourState.SLOW, f"{slow}: cause unknown", slowdown)

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


def _level(by_hour: Iterable[Sequence[float]]) -> _Level:
    measured = [values for values in by_hour if values]
    if not measured:
        return _Level(None, 0.0)
    medians = sorted(median(values) for values in measured)
    deviations = [abs(value - median(values)) for values in measured for value in values if len(values) > 1]
    scatter = _ERROR_OF_MEDIAN * median(deviations) if deviations else 0.0
    return _Level(float(np.quantile(medians, _GOOD_QUANTILE, method="lower")), scatter)


def _now(judge: _Judge, samples: Sequence[ProbeSample], path: Sequence[PathSample], since_s: float) -> _Verdict | None:
    """Return the verdict by the last measurements; None if nothing is fresh."""
    fresh = [sample for sample in samples if sample.time_s >= since_s][-LEAST_SIDE:]
    way = [sample for sample in path if sample.time_s >= since_s][-LEAST_SIDE:]
    if not fresh and not way:
        return None
    verdict = judge.verdict(fresh, way)
    return replace(verdict, reason=f"by the last {len(fresh) or len(way)} measurements: {verdict.reason}")


def _as_on_other_days(hour: Hour) -> _Verdict:
    return _Verdict(hour.state, f"as at this hour of other days: {hour.reason}", hour.slowdown)


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
