"""Competing forecasters: each wins where it should; forecasts never use the forecast value."""

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
    return [Sample(hour * HOUR_S, function(hour)) for hour in range(number)]


def ratio_to_last(samples: Sequence[Sample], after: int = 1) -> float:
    """Return the mean error of the last value divided by ours, over all forecasts from an index on."""
    competition, ours, last = Competition(), 0.0, 0.0
    for index, sample in enumerate(samples):
        prediction = competition.next(sample.time_s)
        if index >= after and prediction is not None:
            ours += abs(prediction.value - sample.value)
            last += abs(samples[index - 1].value - sample.value)
        competition.see(sample)
    return last / ours


def test_noise_around_a_level_is_forecast_almost_optimally() -> None:
    noise = RANDOM.standard_normal(600)
    # The last value's error is sqrt(2) times the mean's.
    assert ratio_to_last(samples_of(lambda hour: 10 + noise[hour], 600)) > 0.95 * math.sqrt(2)


def test_daily_pattern_is_forecast_from_the_second_day_on() -> None:
    noise = 0.02 * RANDOM.standard_normal(240)
    daily = samples_of(lambda hour: 10 + 4 * math.sin(2 * math.pi * hour / 24) + noise[hour], 240)
    assert ratio_to_last(daily, after=72) > 5


def test_unnamed_period_is_detected() -> None:
    waves = samples_of(lambda hour: 5 + (hour % 37 < 9) * 3.0 + 0.1 * math.sin(hour * hour), 400)
    period = period_of([sample.time_s for sample in waves], [sample.value for sample in waves])
    assert period == pytest.approx(37 * HOUR_S, rel=0.01)
    assert ratio_to_last(waves, after=150) > 1.3


def test_noise_has_no_period() -> None:
    times = [hour * HOUR_S for hour in range(500)]
    periods = [period_of(times, np.random.default_rng(seed).standard_normal(500).tolist()) for seed in range(20)]
    assert periods.count(None) >= 19


def test_random_walk_is_forecast_no_worse_than_the_last_value() -> None:
    walk = np.cumsum(RANDOM.standard_normal(800)) + 100
    assert ratio_to_last(samples_of(lambda hour: float(walk[hour]), 800)) == pytest.approx(1, abs=0.05)


def test_a_new_level_is_followed() -> None:
    noise = 0.1 * RANDOM.standard_normal(120)
    samples = samples_of(lambda hour: (1.0 if hour < 60 else 5.0) + noise[hour], 120)
    prediction = forecast(samples[:75], 75 * HOUR_S)
    assert prediction is not None
    assert prediction.value == pytest.approx(5, abs=0.3)


def test_bounds_contain_nine_tenths_of_values() -> None:
    values = 10 + RANDOM.standard_normal(1000)
    competition, held = Competition(), 0
    for hour, value in enumerate(values):
        prediction = competition.next(hour * HOUR_S)
        held += prediction is not None and hour >= 500 and prediction.low <= value <= prediction.high
        competition.see(Sample(hour * HOUR_S, float(value)))
    assert 0.85 <= held / 500 <= 0.95


@pytest.mark.parametrize("index", range(len(every_forecaster())))
def test_forecast_does_not_depend_on_later_values(index: int) -> None:
    values = RANDOM.random(120).tolist()
    predictions = []
    for after in (0.0, 1e6):
        forecaster = every_forecaster()[index]
        for number, value in enumerate(values[:100]):
            forecaster.see(number * HOUR_S, value)
        predictions.append(forecaster.next(100 * HOUR_S))
        forecaster.see(100 * HOUR_S, after)
    assert predictions[0] == predictions[1]


@pytest.mark.parametrize("values", [[0.0] * 60, [3.0] * 60, [0.0, 1.0] * 30, [-1.0, 0.0, 1e300] * 20])
def test_series_that_are_odd_have_finite_forecasts(values: list[float]) -> None:
    prediction = forecast([Sample(hour * HOUR_S, value) for hour, value in enumerate(values)], len(values) * HOUR_S)
    assert prediction is not None
    assert all(map(math.isfinite, (prediction.low, prediction.value, prediction.high, prediction.error)))


def test_of_nothing_there_is_no_forecast_and_of_one_it_is_that() -> None:
    assert forecast([], 0.0) is None
    prediction = forecast([Sample(0.0, 7.0)], 60.0)
    assert prediction is not None
    assert (prediction.value, prediction.low, prediction.high) == (7, 7, 7)
