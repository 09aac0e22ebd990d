"""Two minutes of one draw of each noise; tests/benchmarks/reaction.py (`--seeds 0 --noise-minutes 10`) has more."""

from __future__ import annotations

import pytest

from tests.benchmarks.reacting.noise import KINDS, Noise, moves_of


@pytest.mark.slow
@pytest.mark.parametrize("noise", KINDS, ids=lambda noise: noise.name)
def test_two_minutes_of_noise_move_nothing(noise: Noise) -> None:
    assert moves_of(noise, 120.0, seed=2) == ()
