"""Change points: a surge is found soon, noise and single outliers are not, a level that stays becomes the usual one."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.events.change import Levels
from collectors.events.engine import EventEngine
from collectors.events.rules import ChangeSettings, Rule
from collectors.values import Event, Phase
from tests.collectors.events.reference_rules import ChangeDetector, LevelChange
from tests.collectors.events.states import MS, snapshot


def noise(level: float, deviation: float, number: int, seed: int = 1) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(level, deviation) for _ in range(number)]


def changes(settings: ChangeSettings, values: list[float]) -> list[tuple[int, LevelChange]]:
    """Return the changes that values complete; those of a row between others are those of a detector of its own."""
    levels, detector, events = Levels(settings), ChangeDetector(settings), []
    for index, value in enumerate(values):
        told = levels.observe(np.array([0, 2, 1]), np.array([7.0, value, -value]))
        mine = [
            LevelChange(before, after)
            for index, before, after in zip(told.places, told.before, told.after, strict=True)
            if index == 1
        ]
        change = detector.observe(value)
        assert mine == ([] if change is None else [change])
        assert levels.level(2) == detector.level
        assert levels.is_near(2, 100.0) == detector.is_near(100.0)
        events += [(index, change) for change in mine]
    return events


def test_a_shift_of_the_level_is_found_within_a_few_observations() -> None:
    ((index, change),) = changes(ChangeSettings(), noise(100, 5, 60) + noise(150, 5, 10, seed=2))
    assert 60 <= index <= 64
    assert change.before == pytest.approx(100, abs=4)
    assert change.after == pytest.approx(150, abs=8)


def test_a_fall_is_found_as_well_as_a_rise() -> None:
    ((index, change),) = changes(ChangeSettings(), noise(100, 5, 60) + noise(60, 5, 10, seed=2))
    assert 60 <= index <= 64
    assert change.after < change.before


def test_noise_alone_does_not_alarm() -> None:
    levels, rows = Levels(ChangeSettings()), np.arange(20)
    figures = np.array([noise(100, 10, 500, seed) for seed in range(20)])
    assert not any(len(levels.observe(rows, values).places) for values in figures.T)


def test_one_outlier_however_great_is_no_change() -> None:
    values = [*noise(100, 5, 40), 1e9, *noise(100, 5, 40, seed=2)]
    assert changes(ChangeSettings(), values) == []


def test_a_slow_drift_is_followed() -> None:
    values = [100 + index * 0.005 + wobble for index, wobble in enumerate(noise(0, 3, 2000))]
    assert changes(ChangeSettings(), values) == []


def test_constant_figure_alarms_only_beyond_the_least_deviation() -> None:
    still = [0.0] * 30
    assert changes(ChangeSettings(least_deviation=0.1), [*still, *[0.05] * 50]) == []
    assert changes(ChangeSettings(least_deviation=0.1), [*still, *[0.5] * 5])


@given(st.lists(st.floats(-1e12, 1e12), max_size=80))
def test_levels_match_single_detectors_for_any_values(values: list[float]) -> None:
    changes(ChangeSettings(learn=3), values)


def events_of(values: list[float], **settings: int) -> list[Event]:
    change = ChangeSettings(least_deviation=0.02, **settings)
    engine = EventEngine([Rule(name="surge", figure="utilisation", change=change, match=("s1->s2",))])
    return [event for index, value in enumerate(values) for event in engine.observe(snapshot(100 * index, value))]


def test_a_surge_raises_and_its_end_clears() -> None:
    raised, cleared = events_of([0.2] * 30 + [0.9] * 30 + [0.2] * 10)
    assert (raised.phase, cleared.phase) == (Phase.RAISED, Phase.CLEARED)
    assert 3000 * MS <= raised.time_ns <= 3400 * MS
    assert 6000 * MS <= cleared.time_ns <= 6400 * MS
    assert (raised.threshold, raised.value) == pytest.approx((0.2, 0.9), abs=0.01)


def test_a_surge_shorter_than_the_learning_time_clears_too() -> None:
    assert [event.phase for event in events_of([0.2] * 30 + [0.9] * 6 + [0.2] * 60)] == [Phase.RAISED, Phase.CLEARED]


def test_a_new_level_that_lasts_is_the_usual_one() -> None:
    raised, cleared = events_of([0.2] * 30 + [0.9] * 60, adopt_after_ns=2_000 * MS)
    assert cleared.time_ns == raised.time_ns + 2_000 * MS
    assert cleared.value == 0.9
