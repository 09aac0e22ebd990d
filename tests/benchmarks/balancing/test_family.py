"""The synthetic duty cycles are what their page says they are, and the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.benchmarks.balancing.family import FULL, LIGHT, PAUSED, SYNTHETIC, Pattern, levels

MINUTES = 1_000


def all_levels(pattern: Pattern) -> np.ndarray:
    return np.concatenate([levels(pattern, MINUTES, seed, device) for seed in range(3) for device in range(8)])


@pytest.mark.parametrize("pattern", SYNTHETIC)
def test_same_for_the_same_seed(pattern: Pattern) -> None:
    first, again = levels(pattern, MINUTES, 1, 2), levels(pattern, MINUTES, 1, 2)
    assert np.array_equal(first, again)
    assert len(first) == MINUTES
    assert (first >= 0.0).all()
    assert not np.array_equal(first, levels(pattern, MINUTES, 1, 3))
    assert not np.array_equal(first, levels(pattern, MINUTES, 2, 2))


@pytest.mark.parametrize(
    ("pattern", "mean"),
    [
        (Pattern.LIGHT, LIGHT),
        (Pattern.HEAVY, FULL - (FULL - PAUSED) * 1.5 / 30),
        (Pattern.STEPS, 0.65 * FULL + 0.35 * PAUSED),
        (Pattern.BURSTY, 0.4 * FULL + 0.6 * 0.3),
        (Pattern.DIURNAL, 1.0),
    ],
)
def test_means_are_those_of_the_table(pattern: Pattern, mean: float) -> None:
    assert all_levels(pattern).mean() == pytest.approx(mean, rel=0.1)


def test_bursts_last_minutes() -> None:
    above = all_levels(Pattern.BURSTY) > 1.0
    edges = np.flatnonzero(np.diff(above.astype(int)))
    assert 3.0 < np.diff(edges).mean() < 7.0
