"""Corrections of expected times by measured ones: they converge, average over noise, and stay within bounds."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.acceleration.calibration.corrections import MOST_FACTOR, MOST_KEPT, MOST_STEP, Corrections, corrected

TRUTH = {"filter": 3.0, "join": 0.4, "aggregate": 1.5}


def expected(corrections: Corrections, plain: dict[str, float]) -> dict[str, float]:
    return {kind: seconds * corrections.factor_of(kind) for kind, seconds in plain.items()}


def measured(plain: dict[str, float], noise: float = 1.0) -> float:
    return noise * sum(TRUTH[kind] * seconds for kind, seconds in plain.items())


def mixture(rng: random.Random) -> dict[str, float]:
    return {kind: rng.random() ** 3 for kind in TRUTH}


def mean_error(corrections: Corrections, rng: random.Random) -> float:
    errors = []
    for _ in range(100):
        plain = mixture(rng)
        errors.append(abs(sum(expected(corrections, plain).values()) / measured(plain) - 1))
    return sum(errors) / len(errors)


def test_different_mixtures_determine_all_factors() -> None:
    rng, corrections = random.Random(1), Corrections()
    before = mean_error(corrections, rng)
    for _ in range(100):
        plain = mixture(rng)
        corrections = corrected(corrections, expected(corrections, plain), measured(plain))
    assert corrections.version == 100
    assert mean_error(corrections, rng) < 0.02 < before
    for kind, factor in TRUTH.items():
        assert corrections.factor_of(kind) == pytest.approx(factor, rel=0.05)


def test_noise_is_averaged() -> None:
    rng, corrections = random.Random(2), Corrections()
    for _ in range(200):
        plain = mixture(rng)
        corrections = corrected(
            corrections, expected(corrections, plain), measured(plain, math.exp(rng.gauss(0, 0.15)))
        )
    assert mean_error(corrections, rng) < 0.15


def test_one_statement_again_and_again_is_soon_expected_right() -> None:
    plain, corrections = {"filter": 0.1, "join": 0.2, "aggregate": 0.05}, Corrections()
    for _ in range(6):
        corrections = corrected(corrections, expected(corrections, plain), measured(plain))
    assert sum(expected(corrections, plain).values()) == pytest.approx(measured(plain), rel=0.02)


def test_a_type_has_what_its_kinds_do_not_explain() -> None:
    plain, corrections = {"filter": 0.001}, Corrections()
    for _ in range(8):
        for task_type, measured_s in (("starts", 0.02), ("plain", 0.001)):
            seconds = {"filter": plain["filter"] * corrections.factor_of("filter", task_type)}
            corrections = corrected(corrections, seconds, measured_s, task_type)
    assert 0.001 * corrections.factor_of("filter", "starts") == pytest.approx(0.02, rel=0.2)
    assert 0.001 * corrections.factor_of("filter", "plain") == pytest.approx(0.001, rel=0.2)


def test_types_that_have_not_run_for_long_are_forgotten() -> None:
    corrections = Corrections()
    for number in range(MOST_KEPT + 5):
        corrections = corrected(corrections, {"filter": 1.0}, 2.0, f"t{number}")
        corrections = corrected(corrections, {"filter": 1.0}, 2.0, "often")
    assert len(corrections.types) == MOST_KEPT
    assert {"often", f"t{MOST_KEPT + 4}"} <= corrections.types.keys()
    assert "t0" not in corrections.types


@given(
    st.dictionaries(st.sampled_from(sorted(TRUTH)), st.floats(0, 1e9), max_size=3),
    st.floats(allow_nan=True, allow_infinity=True),
)
@example({"aggregate": 2.0}, 5e-324)
def test_one_task_changes_little_whatever_it_claims(expected_s: dict[str, float], measured_s: float) -> None:
    before = Corrections(version=3, factors={"filter": 2.0})
    after = corrected(before, expected_s, measured_s)
    assert after.version in {3, 4}
    for kind, factor in after.factors.items():
        assert 1 / MOST_FACTOR <= factor <= MOST_FACTOR
        assert abs(math.log(factor / before.factor_of(kind))) <= math.log(MOST_STEP) * len(TRUTH)
