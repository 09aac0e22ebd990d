"""Good hours: growing run times show the hours of a worse network, as distinct from slower computing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from controller.probing.hours import Cause, HourState, PathSample, ProbeSample, good_hours, network_windows
from controller.probing.hours.good import changes_in

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
START_S = 20_000 * DAY_S


def day_of(
    network: Callable[[float], float],
    compute: Callable[[float], float],
    *,
    days: int = 1,
    minutes: int = 20,
    apart: bool = True,
    noise: float = 0.02,
) -> list[ProbeSample]:
    """Return runs of a probe over days; kernel times depend on the (fractional) hour of the day."""
    random = np.random.default_rng(3)
    samples = []
    for number in range(days * 24 * 60 // minutes):
        hour = number * minutes / 60
        parts = [curve(hour) * float(np.exp(noise * random.standard_normal())) for curve in (network, compute)]
        samples.append(ProbeSample(START_S + hour * HOUR_S, sum(parts), *(parts if apart else (None, None))))
    return samples


def flat(seconds: float) -> Callable[[float], float]:
    return lambda _: seconds


def test_constant_samples_make_all_hours_good_without_changes() -> None:
    report = good_hours(day_of(flat(0.5), flat(1.0)), (), START_S + DAY_S)
    assert {hour.state for hour in report.hours} == {HourState.GOOD}
    assert report.changes == ()
    assert report.now is HourState.GOOD


def test_sudden_slowdown_is_attributed_to_lower_bandwidth() -> None:
    samples = day_of(lambda hour: 0.5 if hour < 14 else 1.5, flat(1.0))
    report = good_hours(samples, (), START_S + DAY_S)
    (change,) = report.changes
    assert abs(change.time_s - (START_S + 14 * HOUR_S)) <= 1200
    assert change.cause is Cause.NETWORK
    assert change.factor == pytest.approx(2.5 / 1.5, rel=0.05)
    assert change.network_factor == pytest.approx(3, rel=0.05)
    assert [hour.state for hour in report.hours] == [HourState.GOOD] * 14 + [HourState.SLOW_NETWORK] * 10
    assert report.now is HourState.SLOW_NETWORK


def test_computing_that_is_slower_is_not_the_network() -> None:
    report = good_hours(day_of(flat(0.5), lambda hour: 1.0 if hour < 10 else 1.6), (), START_S + DAY_S)
    assert [change.cause for change in report.changes] == [Cause.COMPUTE]
    assert report.at(START_S + 12 * HOUR_S).state is HourState.SLOW_COMPUTE
    assert "compute kernels take 1.5" in report.hours[12].reason


def test_daily_slowdowns_make_the_same_hours_bad() -> None:
    samples = day_of(lambda hour: 1.0 if 9 <= hour % 24 < 17 else 0.4, flat(1.0), days=5)
    report = good_hours(samples, (), START_S + 5 * DAY_S)
    assert [hour.hour for hour in report.hours if hour.state is HourState.SLOW_NETWORK] == list(range(9, 17))
    assert len(report.changes) == 10


def test_telemetry_decides_without_network_kernels() -> None:
    samples = day_of(lambda hour: 0.5 if hour < 12 else 1.5, flat(1.0), apart=False)
    alone = good_hours(samples, (), START_S + DAY_S)
    assert alone.hours[15].state is HourState.SLOW
    assert alone.changes[0].cause is Cause.UNKNOWN
    way = [PathSample(sample.time_s, 9e7 if sample.time_s < START_S + 12 * HOUR_S else 3e7, 1e6) for sample in samples]
    report = good_hours(samples, way, START_S + DAY_S)
    assert report.hours[15].state is HourState.SLOW_NETWORK
    assert report.changes[0].cause is Cause.NETWORK
    assert report.hours[15].available_bps == 3e7


def test_hours_without_a_probe_go_by_telemetry_or_are_unknown() -> None:
    samples = [sample for sample in day_of(flat(0.5), flat(1.0)) if sample.time_s < START_S + 12 * HOUR_S]
    way = [PathSample(START_S + hour * HOUR_S, 9e7 if hour < 15 else 1e7, 1e6) for hour in range(18)]
    report = good_hours(samples, way, START_S + DAY_S)
    states = [hour.state for hour in report.hours]
    assert states[12:15] == [HourState.GOOD] * 3
    assert states[15:18] == [HourState.SLOW_NETWORK] * 3
    assert states[18:] == [HourState.UNKNOWN] * 6
    assert report.hours[16].reason.startswith("by telemetry alone")


def test_of_nothing_nothing_is_known() -> None:
    report = good_hours([], [], START_S)
    assert {hour.state for hour in report.hours} == {HourState.UNKNOWN}
    assert (report.now, report.run_time_s) == (HourState.UNKNOWN, None)


def test_samples_outside_the_window_do_not_count() -> None:
    samples = day_of(flat(0.5), flat(1.0), days=3)
    report = good_hours(samples, (), START_S + 2 * DAY_S, window_s=DAY_S)
    assert sum(hour.samples for hour in report.hours) == 72


def test_noise_alone_hardly_ever_changes_and_a_spike_never() -> None:
    quiet = [changes_in(np.exp(0.05 * np.random.default_rng(seed).standard_normal(200)).tolist()) for seed in range(50)]
    assert sum(map(len, quiet)) <= 1
    spiked = [1.0] * 20 + [10.0] + [1.0] * 30
    assert changes_in(spiked) == ()


@pytest.mark.parametrize("index", [5, 30, 54])
def test_change_is_located(index: int) -> None:
    values = np.exp(0.03 * np.random.default_rng(index).standard_normal(60))
    values[index:] *= 1.4
    (change,) = changes_in(values.tolist())
    assert abs(change - index) <= 1


def test_windows_follow_the_hours_and_the_present_state() -> None:
    samples = day_of(lambda hour: 1.0 if 9 <= hour % 24 < 17 else 0.4, flat(1.0), days=2)
    now_s = START_S + 2 * DAY_S - 0.5 * HOUR_S
    windows = network_windows(good_hours(samples, (), now_s), now_s)
    assert windows is not None
    assert windows[0].begin_ns == int(now_s * 1e9)
    assert windows[-1].end_ns == int((now_s + DAY_S) * 1e9)
    assert all(one.end_ns == other.begin_ns for one, other in pairwise(windows))
    assert all(window.is_known for window in windows)
    slow = [window for window in windows if window.slowdown > 1]
    assert [(end / 1e9 - START_S - 2 * DAY_S) / HOUR_S for end in (slow[0].begin_ns, slow[-1].end_ns)] == [9, 17]
    assert all(window.slowdown == pytest.approx(2.5, rel=0.05) for window in slow)
    worse = [
        replace(sample, run_time_s=9, network_s=8) if sample.time_s > now_s - 2 * HOUR_S else sample
        for sample in samples
    ]
    windows = network_windows(good_hours(worse, (), now_s), now_s)
    assert windows is not None
    assert windows[0].slowdown == pytest.approx(20, rel=0.05)
    assert windows[0].end_ns == int((START_S + 2 * DAY_S) * 1e9)


def test_hour_without_evidence_is_not_a_bad_one() -> None:
    now_s = START_S + DAY_S
    never_bad = [sample for sample in day_of(flat(0.5), flat(1.0)) if sample.time_s % DAY_S < 2 * HOUR_S]
    windows = network_windows(good_hours(never_bad, (), now_s), now_s)
    assert windows is not None
    assert [(window.slowdown, window.is_known) for window in windows] == [(1.0, True), (1.0, False)]

    # Once hours are known to be slow, an unknown one is as slow as the known ones, and one good one, are on average.
    some_bad = day_of(lambda hour: 0.5 if hour % 24 < 3 else 2.0, flat(1.0), days=4)
    some_bad = [sample for sample in some_bad if sample.time_s % DAY_S < 6 * HOUR_S]
    now_s = START_S + 4 * DAY_S
    windows = network_windows(good_hours(some_bad, (), now_s), now_s)
    assert windows is not None
    assert not windows[-1].is_known
    assert windows[-1].slowdown == pytest.approx((1 + 3 * 1 + 3 * 4) / 7, rel=0.05)
    assert network_windows(good_hours([], [], now_s), now_s) is None


def test_slower_computing_is_no_slower_network() -> None:
    samples = day_of(flat(0.5), lambda hour: 1.0 if hour < 12 else 2.0)
    report = good_hours(samples, (), START_S + DAY_S)
    assert [hour.state for hour in report.hours[12:]] == [HourState.SLOW_COMPUTE] * 12
    assert {hour.slowdown for hour in report.hours} == {1.0}


def test_hour_that_varies_by_day_tells_less_of_the_next() -> None:
    def expected(days: int, noise: float) -> float:
        samples = day_of(lambda hour: 2.0 if hour % 24 == 12 else 0.5, flat(1.0), days=days, minutes=60, noise=noise)
        slowdown = good_hours(samples, (), START_S + days * DAY_S).hours[12].slowdown
        assert slowdown is not None
        return slowdown

    assert expected(7, 0.02) == pytest.approx(4, rel=0.05)
    assert expected(1, 0.02) == pytest.approx(2, rel=0.05)
    assert expected(7, 1.5) == 1.0
