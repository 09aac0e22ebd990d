"""Settling time, overshoot and steady error of responses computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from controller.balance.control.response import figures_of
from controller.balance.errors import ResponseError


def test_settling_time_is_when_the_error_stays_in_the_band() -> None:
    figures = figures_of([10.0, 11.0, 12.0, 13.0, 14.0], [0.5, 0.05, 0.2, 0.1, 0.0], band=0.1)
    assert figures.settle_s == 3.0  # the first entry into the band was left again


def test_response_within_the_band_from_the_start_settles_at_once() -> None:
    assert figures_of([0.0, 1.0], [0.05, 0.0]).settle_s == 0.0


def test_a_response_that_ends_outside_has_not_settled() -> None:
    assert figures_of([0.0, 1.0, 2.0], [0.5, 0.0, 0.2]).settle_s is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_overshoot_is_a_share_of_the_first_distance(sign: float) -> None:
    figures = figures_of([0.0, 1.0, 2.0, 3.0], [sign * 0.4, sign * 0.1, sign * -0.1, 0.0])
    assert figures.overshoot == pytest.approx(0.25)


def test_a_response_that_never_crosses_has_no_overshoot() -> None:
    assert figures_of([0.0, 1.0, 2.0], [0.4, 0.2, 0.1]).overshoot == 0.0


def test_overshoot_of_a_disturbance_is_relative_to_its_peak() -> None:
    assert figures_of([0, 1, 2, 3, 4], [0.0, 0.1, 0.4, -0.2, 0.0]).overshoot == pytest.approx(0.5)


def test_steady_error_and_swing_are_those_of_the_last_tenth() -> None:
    values = [1.0] * 90 + [0.2, 0.1] * 5
    figures = figures_of(range(100), values)
    assert figures.steady_error == pytest.approx(0.15)
    assert figures.swing == pytest.approx(0.1)


def test_errors_are_relative_to_the_target() -> None:
    figures = figures_of([0.0, 1.0, 2.0], [1.0, 0.5, 0.3], target=0.3)
    assert (figures.settle_s, figures.steady_error, figures.overshoot) == (2.0, 0.0, 0.0)


def test_mean_error_of_a_decay_is_its_integral() -> None:
    times = np.linspace(0.0, 20.0, 2001)
    figures = figures_of(list(times), list(np.exp(-times)))
    assert figures.mean_error == pytest.approx(1.0 / 20.0, rel=1e-3)
    assert figures.settle_s == pytest.approx(-math.log(0.1), abs=0.011)


def test_a_response_that_is_zero_throughout_has_no_overshoot() -> None:
    assert figures_of([0.0, 1.0], [0.0, 0.0]).overshoot == 0.0


@pytest.mark.parametrize(
    ("times_s", "values", "says"),
    [
        ([0.0, 1.0], [0.1], "a response of 2 times and 1 values"),
        ([0.0], [0.1], "a response needs at least 2 samples"),
        ([0.0, math.nan], [0.1, 0.1], "times and values of a response must be finite"),
        ([0.0, 2.0, 1.0], [0.1, 0.1, 0.1], "sample 3 of a response is not later than the one before it"),
    ],
)
def test_malformed_response_is_refused(times_s: list[float], values: list[float], says: str) -> None:
    with pytest.raises(ResponseError, match=f"^{says}$"):
        figures_of(times_s, values)
