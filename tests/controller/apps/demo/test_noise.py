"""Loads that come and go but fit move nothing; ten minutes of each kind are tests/benchmarks/reaction.py's."""

from __future__ import annotations

import pytest

from tests.benchmarks.reacting.noise import KINDS, Noise, moves_of


@pytest.mark.parametrize("noise", [KINDS[0], KINDS[2]], ids=lambda noise: noise.name)
def test_a_few_seconds_of_noise_move_nothing(noise: Noise) -> None:
    assert moves_of(noise, 5.0, seed=3) == ()
