"""The discrete form literally, and the safeguards that production needs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.control.linear import LinearPlant, errors_in_loop
from controller.balance.control.pid import AntiWindup, Blocked, PidSettings, PidState, literal, step
from controller.balance.errors import SampleError
from controller.balance.values import Form, Gains, Sample


def sample(time_s: float, error: float) -> Sample:
    """Return a sample of an error."""
    return Sample(time_s, bus=max(error, 0.0), load=max(-error, 0.0), unit="gpu0")


def outputs(settings: PidSettings, errors: Iterable[float]) -> list[float]:
    """Return the outputs for errors once per second."""
    state, collected = PidState(), []
    for time_s, error in enumerate(errors):
        state, output = step(settings, state, sample(time_s, error))
        collected.append(output)
    return collected


@pytest.mark.parametrize("form", list(Form))
def test_steps_are_the_discrete_form_of_the_specification(form: Form) -> None:
    random_errors = [random.Random(1).uniform(-0.5, 0.5) for _ in range(200)]
    settings = PidSettings(form=form, kp=0.7, ki=0.03, kd=0.4, low=-99.0, high=99.0)
    gains = Gains(0.7, 0.03, 0.4).of(form)
    assert outputs(settings, random_errors) == pytest.approx(list(literal(gains, random_errors)), abs=1e-12)


def test_the_discrete_form_by_hand() -> None:
    errors = [0.5, 0.25, -0.25]
    by_hand = [0.5 + 0.1 * 0.5, 0.25 + 0.1 * 0.75 - 2 * 0.25, -0.25 + 0.1 * 0.5 - 2 * 0.5]
    assert list(literal(Gains(1.0, 0.1, 2.0), errors)) == pytest.approx(by_hand)


def test_a_sample_that_is_not_newer_is_refused() -> None:
    state, _ = step(PidSettings(), PidState(), sample(5.0, 0.5))
    with pytest.raises(SampleError, match=r"^unit gpu0: the sample at 5 s is not newer than that at 5 s$"):
        step(PidSettings(), state, sample(5.0, 0.5))


def run(
    settings: PidSettings, samples: Iterable[tuple[float, float]], blocked: Blocked = Blocked.NO
) -> tuple[PidState, list[float]]:
    """Return the state and outputs after samples of (time, error)."""
    state, outputs = PidState(), []
    for time_s, error in samples:
        state, output = step(settings, state, sample(time_s, error), blocked=blocked)
        outputs.append(output)
    return state, outputs


def test_p_leaves_a_steady_error_and_an_integral_removes_it() -> None:
    """On a plant whose levers do not accumulate; where they do, they are an integral themselves."""
    plant = LinearPlant(gain=1.0, lag_samples=3.0, accumulates=False)
    p, pi = (
        list(errors_in_loop(PidSettings(form=form, kp=1.0, ki=0.2), plant, [0.5] * 200)) for form in (Form.P, Form.PI)
    )
    assert p[-1] == pytest.approx(0.5 / (1.0 + 1.0))
    assert pi[-1] == pytest.approx(0.0, abs=1e-9)


def test_pd_answers_a_jump_of_the_load_more_than_p_does() -> None:
    pd, p = (outputs(PidSettings(form=form, kp=0.5, kd=0.5), [0.0, 0.4, 0.4]) for form in (Form.PD, Form.P))
    assert pd == pytest.approx([0.0, 0.4, 0.2])
    assert p == pytest.approx([0.0, 0.2, 0.2])


@pytest.mark.parametrize("anti_windup", list(AntiWindup))
def test_outputs_keep_within_their_limits(anti_windup: AntiWindup) -> None:
    settings = PidSettings(form=Form.PI, kp=2.0, ki=0.5, low=-0.3, high=0.6, anti_windup=anti_windup)
    assert set(outputs(settings, [1.0] * 10)) == {0.6}
    assert set(outputs(settings, [-1.0] * 10)) == {-0.3}


@pytest.mark.parametrize("anti_windup", [AntiWindup.CLAMP, AntiWindup.BACK_CALCULATION])
def test_a_long_time_at_the_limit_is_not_paid_back(anti_windup: AntiWindup) -> None:
    """With wind-up the output would stay at its limit long after the error has turned."""
    errors = [0.8] * 50 + [-0.2] * 20
    settings = {"form": Form.PI, "kp": 0.5, "ki": 0.1, "high": 0.6, "low": -0.6}
    guarded = outputs(PidSettings(anti_windup=anti_windup, **settings), errors)  # type: ignore[arg-type]
    wound_up = outputs(PidSettings(anti_windup=AntiWindup.NONE, **settings), errors)  # type: ignore[arg-type]
    assert guarded[50] < 0.3
    assert guarded[60] < 0.0
    assert wound_up[-1] == 0.6


@pytest.mark.parametrize("anti_windup", [AntiWindup.CLAMP, AntiWindup.BACK_CALCULATION])
def test_integral_does_not_grow_if_no_lever_can_follow(anti_windup: AntiWindup) -> None:
    settings = PidSettings(form=Form.PI, kp=0.1, ki=0.01, anti_windup=anti_windup)
    samples = [(float(k), 0.5) for k in range(100)]
    assert run(settings, samples, blocked=Blocked.UP)[0].integral == 0.0
    assert run(settings, samples, blocked=Blocked.BOTH)[0].integral == 0.0
    assert run(settings, samples, blocked=Blocked.DOWN)[0].integral == pytest.approx(0.5)


def test_back_calculation_holds_the_integral_at_the_limit() -> None:
    settings = PidSettings(form=Form.PI, kp=0.5, ki=0.1, high=0.6, anti_windup=AntiWindup.BACK_CALCULATION)
    state, _ = run(settings, [(float(k), 0.8) for k in range(50)])
    assert 0.5 * 0.8 + state.integral == pytest.approx(0.6)


def test_derivative_on_measurement_gives_no_setpoint_kick() -> None:
    def after_another_target(*, on_measurement: bool) -> float:
        settings = PidSettings(form=Form.PD, kp=0.0, kd=1.0, derivative_on_measurement=on_measurement)
        state, _ = run(settings, [(0.0, 0.2), (1.0, 0.2)])
        aimed = PidSettings(form=Form.PD, kp=0.0, kd=1.0, target=0.3, derivative_on_measurement=on_measurement)
        return step(aimed, state, sample(2.0, 0.2))[1]

    assert after_another_target(on_measurement=True) == 0.0
    assert after_another_target(on_measurement=False) == pytest.approx(-0.3)


def test_a_filtered_derivative_is_smaller_under_noise() -> None:
    rng = random.Random(5)
    errors = [rng.gauss(0.0, 0.05) for _ in range(500)]
    rough = outputs(PidSettings(form=Form.PD, kp=0.0, kd=1.0), errors)
    smooth = outputs(PidSettings(form=Form.PD, kp=0.0, kd=1.0, derivative_filter=0.8), errors)
    assert pstdev(smooth) < 0.5 * pstdev(rough)


def test_irregular_samples_count_by_the_time_that_passed() -> None:
    """The integral of a constant error and the derivative of a steady slope do not depend on the sampling."""
    settings = PidSettings(form=Form.PID, kp=0.0, ki=0.01, kd=1.0, period_s=1.0)
    regular = run(settings, [(float(k), 0.01 * k) for k in range(21)])
    irregular = run(
        settings,
        [(time_s, 0.01 * time_s) for time_s in (0.0, 0.5, 2.0, 4.5, 5.0, 7.0, 9.5, 10.0, 12.0, 14.0, 17.0, 20.0)],
    )
    assert irregular[0].slope == pytest.approx(regular[0].slope) == pytest.approx(0.01)
    assert irregular[0].integral == pytest.approx(regular[0].integral, rel=0.1)


def test_pid_without_a_period_equals_the_discrete_form() -> None:
    settings = PidSettings(form=Form.PID, kp=0.3, ki=0.05, kd=0.2)
    irregular = run(settings, [(0.0, 0.1), (0.2, 0.3), (9.0, 0.2)])[1]
    assert irregular == pytest.approx(list(literal(Gains(0.3, 0.05, 0.2), [0.1, 0.3, 0.2])))


def test_long_gap_is_bounded_in_the_integral_and_has_no_slope() -> None:
    """After many missed samples the integral counts three periods at most, and there is no derivative."""
    settings = PidSettings(form=Form.PID, kp=0.0, ki=0.01, kd=5.0, period_s=1.0)
    state, _ = run(settings, [(0.0, 0.1), (1.0, 0.1)])
    after, output = step(settings, state, sample(100.0, 0.5))
    assert after.integral - state.integral == pytest.approx(0.01 * 0.5 * 3)
    assert after.slope == 0.0
    assert output == pytest.approx(after.integral)


def test_two_samples_at_nearly_the_same_time_give_no_kick() -> None:
    """Noise over almost no time is not a slope: the derivative assumes at least a tenth of a period."""
    settings = PidSettings(form=Form.PD, kp=0.0, kd=1.0, period_s=1.0)
    state, _ = run(settings, [(0.0, 0.10), (1.0, 0.10)])
    assert step(settings, state, sample(1.0 + 1e-6, 0.11))[0].slope == pytest.approx(0.1)


def test_it_acts_until_the_error_is_under_the_threshold() -> None:
    settings = PidSettings(form=Form.PI, kp=1.0, ki=0.1, threshold=0.1)
    state, outputs = run(settings, [(0.0, 0.3), (1.0, 0.1), (2.0, 0.09)])
    assert outputs[1] == pytest.approx(0.1 + 0.1 * 0.4)
    assert outputs[2] == 0.0
    assert state.rests
    assert state.integral == 0.0
    again, output = step(settings, state, sample(3.0, -0.2))
    assert not again.rests
    assert output == pytest.approx(-0.2 - 0.1 * 0.2)


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=60), st.sampled_from(list(AntiWindup)))
def test_output_stays_within_its_limits_for_any_errors(errors: list[float], windup: AntiWindup) -> None:
    settings = PidSettings(form=Form.PID, kp=3.0, ki=0.7, kd=2.0, low=-0.9, high=0.9, anti_windup=windup, period_s=2.0)
    assert all(-0.9 <= output <= 0.9 for output in outputs(settings, errors))
