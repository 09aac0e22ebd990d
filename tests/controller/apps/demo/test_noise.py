"""Loads that come and go but fit cause no moves; tests/benchmarks/reaction.py runs ten minutes of each kind."""

from __future__ import annotations

import pytest

from tests.benchmarks.reacting.noise import KINDS, Noise, moves_of


@pytest.mark.parametrize("noise", [KINDS[0], KINDS[2]], ids=lambda noise: noise.name)
def test_a_few_seconds_of_noise_move_nothing(noise: Noise) -> None:
    assert moves_of(noise, 5.0, seed=3) == ()
