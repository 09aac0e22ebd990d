"""Loads over time, step by step."""

from __future__ import annotations

import numpy as np

from controller.balance.plants import loads


def test_a_step_a_ramp_and_bursts() -> None:
    assert loads.constant(3, 5).tolist() == [5, 5, 5]
    assert loads.step(4, 1, 9, at=2).tolist() == [1, 1, 9, 9]
    assert loads.ramp(6, 0, 8, first=1, last=5).tolist() == [0, 0, 2, 4, 6, 8]
    assert loads.ramp(3, 0, 8, first=1, last=1).tolist() == [0, 0, 8]
    assert loads.burst(7, 1, 9, every=3, length=1).tolist() == [1, 1, 9, 1, 1, 9, 1]


def test_noise_is_of_its_spread_and_never_below_nothing() -> None:
    load = loads.noisy(loads.constant(4000, 100), 0.5, np.random.default_rng(2))
    assert abs(np.mean(load) - 100) < 3
    assert abs(np.std(load) - 50) < 3
    assert load.min() >= 0
