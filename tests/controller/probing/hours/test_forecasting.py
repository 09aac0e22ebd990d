"""Forecasters compete: each wins where it should; forecasts are strictly of what has not been seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from controller.probing.hours.forecasters import every_forecaster
from controller.probing.hours.forecasters.periodic import period_of
from controller.probing.hours.forecasting import Competition, forecast
from controller.probing.hours.values import Sample

HOUR_S = 3600.0
RANDOM = np.random.default_rng(16)


def samples_of(function: Callable[[int], float], number: int) -> list[Sample]:
    return [Sample(place * HOUR_S, function(place)) for place in range(number)]


def ratio_to_last(samples: Sequence[Sample], after: int = 1) -> float:
    """Return the mean error of the last value over ours, of every forecast from a place on."""
    competition, ours, last = Competition(), 0.0, 0.0
    for place, sample in enumerate(samples):
        said = competition.next(sample.time_s)
        if place >= after and said is not None:
            ours += abs(said.value - sample.value)
            last += abs(samples[place - 1].value - sample.value)
        competition.see(sample)
    return last / ours


def test_noise_around_a_level_is_forecast_almost_optimally() -> None:
    noise = RANDOM.standard_normal(600)
    # The last value errs by the root of 2 times what the mean does.
    assert ratio_to_last(samples_of(lambda place: 10 + noise[place], 600)) > 0.95 * math.sqrt(2)


def test_daily_pattern_is_forecast_from_the_second_day_on() -> None:
    noise = 0.02 * RANDOM.standard_normal(240)
    daily = samples_of(lambda place: 10 + 4 * math.sin(2 * math.pi * place / 24) + noise[place], 240)
    assert ratio_to_last(daily, after=72) > 5


def test_a_period_that_nobody_named_is_found() -> None:
    waves = samples_of(lambda place: 5 + (place % 37 < 9) * 3.0 + 0.1 * math.sin(place * place), 400)
    found = period_of([one.time_s for one in waves], [one.value for one in waves])
    assert found == pytest.approx(37 * HOUR_S, rel=0.01)
    assert ratio_to_last(waves, after=150) > 1.3


def test_noise_has_no_period() -> None:
    times = [place * HOUR_S for place in range(500)]
    found = [period_of(times, np.random.default_rng(seed).standard_normal(500).tolist()) for seed in range(20)]
    assert found.count(None) >= 19


def test_random_walk_is_forecast_no_worse_than_the_last_value() -> None:
    walk = np.cumsum(RANDOM.standard_normal(800)) + 100
    assert ratio_to_last(samples_of(lambda place: float(walk[place]), 800)) == pytest.approx(1, abs=0.05)


def test_a_new_level_is_followed() -> None:
    noise = 0.1 * RANDOM.standard_normal(120)
    samples = samples_of(lambda place: (1.0 if place < 60 else 5.0) + noise[place], 120)
    said = forecast(samples[:75], 75 * HOUR_S)
    assert said is not None
    assert said.value == pytest.approx(5, abs=0.3)


def test_bounds_hold_nine_tenths_of_what_comes() -> None:
    values = 10 + RANDOM.standard_normal(1000)
    competition, held = Competition(), 0
    for place, value in enumerate(values):
        said = competition.next(place * HOUR_S)
        held += said is not None and place >= 500 and said.low <= value <= said.high
        competition.see(Sample(place * HOUR_S, float(value)))
    assert 0.85 <= held / 500 <= 0.95


@pytest.mark.parametrize("place", range(len(every_forecaster())))
def test_a_forecast_does_not_change_with_what_comes_after_it(place: int) -> None:
    values = RANDOM.random(120).tolist()
    said = []
    for after in (0.0, 1e6):
        one = every_forecaster()[place]
        for number, value in enumerate(values[:100]):
            one.see(number * HOUR_S, value)
        said.append(one.next(100 * HOUR_S))
        one.see(100 * HOUR_S, after)
    assert said[0] == said[1]


@pytest.mark.parametrize("values", [[0.0] * 60, [3.0] * 60, [0.0, 1.0] * 30, [-1.0, 0.0, 1e300] * 20])
def test_series_that_are_odd_have_finite_forecasts(values: list[float]) -> None:
    said = forecast([Sample(place * HOUR_S, value) for place, value in enumerate(values)], len(values) * HOUR_S)
    assert said is not None
    assert all(map(math.isfinite, (said.low, said.value, said.high, said.error)))


def test_of_nothing_there_is_no_forecast_and_of_one_it_is_that() -> None:
    assert forecast([], 0.0) is None
    one = forecast([Sample(0.0, 7.0)], 60.0)
    assert one is not None
    assert (one.value, one.low, one.high) == (7, 7, 7)
