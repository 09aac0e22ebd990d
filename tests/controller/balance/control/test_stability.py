"""Margins against algebra by hand, Jury's table against roots, both against the loop in virtual time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.control.linear import Coefficients, LinearPlant, closed_loop, errors_in_loop
from controller.balance.control.pid import AntiWindup, PidSettings
from controller.balance.control.stability import margin_of, radii_of, radius_of, refuse_unstable
from controller.balance.errors import GainsError
from controller.balance.values import Form, Gains

PLANTS = st.builds(
    LinearPlant,
    gain=st.floats(0.1, 3.0),
    lag_samples=st.floats(0.0, 8.0),
    delay_samples=st.integers(0, 5),
    accumulates=st.booleans(),
)
GAINS = st.builds(Gains, kp=st.floats(0.0, 3.0), ki=st.floats(0.0, 1.0), kd=st.floats(0.0, 2.0))


def test_p_on_integrating_plant_is_deadbeat_at_1_unstable_at_2() -> None:
    """By hand: z - 1 + kp = 0, so the root is 1 - kp."""
    at_once = margin_of(Gains(1.0), LinearPlant(gain=1.0))
    assert at_once.is_stable
    assert at_once.radius == 0.0
    assert at_once.stable_to == pytest.approx(2.0)
    assert not margin_of(Gains(2.0), LinearPlant(gain=1.0)).is_stable
    assert margin_of(Gains(1.5), LinearPlant(gain=1.0)).radius == pytest.approx(0.5)


def test_a_sample_of_delay_takes_half_of_the_gains_away() -> None:
    """By hand: z^2 - z + kp = 0 has roots of absolute value sqrt(kp): stable below 1, where without delay it is 2."""
    margin = margin_of(Gains(0.5), LinearPlant(gain=1.0, delay_samples=1))
    assert margin.radius == pytest.approx(math.sqrt(0.5))
    assert margin.stable_to == pytest.approx(2.0)


def test_phase_and_delay_margin_by_hand() -> None:
    """kp / (z - 1) with kp = 1 has size 1 at 60 degrees a sample, where its phase is -120."""
    margin = margin_of(Gains(1.0), LinearPlant(gain=1.0))
    assert margin.phase_deg == pytest.approx(60.0)
    assert margin.delay_samples == pytest.approx(1.0)
    assert margin.distance == pytest.approx(0.5, abs=1e-6)  # at half a turn, where it is -1/2


def is_stable_by_jury(polynomial: Coefficients) -> bool:
    """Return whether all roots of a real polynomial lie inside the unit circle, by Jury's table, not by roots.

    Each row is the previous one without the part explained by its own mirror image; the loop is stable if the first
    coefficient outweighs the last in each of them.
    """
    row = np.trim_zeros(np.asarray(polynomial, dtype=np.float64), "f")
    while len(row) > 1:
        share = row[-1] / row[0]
        if not abs(share) < 1.0:
            return False
        row = (row - share * row[::-1])[:-1]
    return len(row) == 1


@given(GAINS, PLANTS)
def test_jurys_table_agrees_with_the_roots(gains: Gains, plant: LinearPlant) -> None:
    polynomial = closed_loop(gains, plant)
    radius = radius_of(polynomial)
    if abs(radius - 1.0) > 1e-3:  # on the circle itself rounding decides
        assert is_stable_by_jury(polynomial) == (radius < 1.0)


@given(st.lists(GAINS, min_size=1, max_size=8), PLANTS)
def test_radii_of_many_are_those_of_each(many: list[Gains], plant: LinearPlant) -> None:
    polynomials = [closed_loop(gains, plant) for gains in many]
    assert radii_of(polynomials) == pytest.approx([radius_of(polynomial) for polynomial in polynomials], abs=1e-5)


@given(GAINS, PLANTS)
def test_gains_are_stable_exactly_up_to_the_reported_factor(gains: Gains, plant: LinearPlant) -> None:
    margin = margin_of(gains, plant)
    if not margin.is_stable or margin.stable_to is None or not 1.01 < margin.stable_to < 1e3:
        return
    below, above = 0.999 * margin.stable_to, 1.001 * margin.stable_to
    assert radius_of(closed_loop(Gains(gains.kp * below, gains.ki * below, gains.kd * below), plant)) < 1.0
    assert radius_of(closed_loop(Gains(gains.kp * above, gains.ki * above, gains.kd * above), plant)) > 1.0


@pytest.mark.parametrize("form", list(Form))
@pytest.mark.parametrize("accumulates", [True, False])
def test_errors_decay_at_the_rate_of_the_largest_root(form: Form, *, accumulates: bool) -> None:
    plant = LinearPlant(gain=1.0, lag_samples=2.0, delay_samples=1, accumulates=accumulates)
    settings = PidSettings(
        form=form, kp=0.2, ki=0.01, kd=0.1, low=-9.0, high=9.0, anti_windup=AntiWindup.NONE,
        derivative_on_measurement=False,
    )  # fmt: skip
    margin = margin_of(settings.gains, plant)
    assert margin.is_stable
    late = np.abs(list(errors_in_loop(settings, plant, [0.5] * 400)))
    settled = late[-1] if form in {Form.P, Form.PD} and not accumulates else 0.0
    assert np.max(np.abs(late[200:300] - settled)) <= 20.0 * margin.radius**200 + 1e-12


def test_unstable_gains_are_refused_with_the_margin() -> None:
    plant = LinearPlant(gain=1.0, delay_samples=2)
    with pytest.raises(GainsError) as caught:
        refuse_unstable(Gains(1.0, 0.05, 0.1), plant, "gpu0")
    assert str(caught.value) == (
        "gpu0: kp 1, ki 0.05, kd 0.1 are unstable on a plant of gain 1, lag 0 samples, delay 2, levers accumulate: "
        "errors grow 1.18-fold each sample; stable at less than 0.585 times these gains"
    )


def test_gains_that_no_factor_makes_stable_are_refused_as_such() -> None:
    with pytest.raises(GainsError, match=r"errors grow 1\.07-fold each sample, and no common factor makes them stable"):
        refuse_unstable(Gains(0.001, 0.1), LinearPlant(gain=1.0, lag_samples=5.0))


def test_marginally_stable_loop_is_refused() -> None:
    with pytest.raises(GainsError, match="errors do not die away"):
        refuse_unstable(Gains(0.0, 0.1), LinearPlant(gain=1.0))


def test_stable_gains_are_returned_with_their_margin() -> None:
    margin = refuse_unstable(Gains(0.5), LinearPlant(gain=1.0))
    assert margin.stable_from == 0.0
    assert margin.stable_to == pytest.approx(4.0)


@pytest.mark.parametrize("gain", [0.0, -1.0, math.nan, math.inf])
def test_plant_without_positive_finite_gain_is_refused(gain: float) -> None:
    with pytest.raises(GainsError, match=r"the plant's gain is .*, not a finite number above 0"):
        LinearPlant(gain=gain)
