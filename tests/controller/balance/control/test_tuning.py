"""Gains from models and from recorded steps; all of SIMC's are stable, with margin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from controller.balance.control.identification import StepResponse, fit_step, read_response
from controller.balance.control.stability import margin_of
from controller.balance.control.tuning import FirstOrder, TuningRule, tuned
from controller.balance.errors import GainsError, ResponseError
from controller.balance.values import Form


def recorded(plant: FirstOrder, noise: float = 0.0, step: float = 0.5, until_s: float = 60.0) -> StepResponse:
    """Return a plant's response to a step of the levers at 0 s, every half second."""
    times = np.arange(-20.0, until_s, 0.5)
    since = np.maximum(times - plant.delay_s, 0.0)
    errors = 0.4 - plant.gain * step * (1.0 - np.exp(-since / plant.lag_s))
    errors += np.random.default_rng(3).normal(0.0, noise, len(times)) if noise else 0.0
    return StepResponse(tuple(times), tuple(np.where(times >= 0.0, 0.2 + step, 0.2)), tuple(errors))


@pytest.mark.parametrize("step", [0.5, -0.25])
def test_a_recorded_step_gives_its_plant_back(step: float) -> None:
    fit = fit_step(recorded(FirstOrder(0.6, 5.0, 2.0), step=step))
    assert (fit.plant.gain, fit.plant.lag_s, fit.plant.delay_s) == pytest.approx((0.6, 5.0, 2.0), rel=1e-4)
    assert fit.off < 1e-6
    assert (fit.at_s, fit.step, fit.before) == pytest.approx((0.0, step, 0.4))


def test_a_noisy_step_gives_its_plant_back_nearly() -> None:
    fit = fit_step(recorded(FirstOrder(0.6, 5.0, 2.0), noise=0.01))
    assert (fit.plant.gain, fit.plant.lag_s, fit.plant.delay_s) == pytest.approx((0.6, 5.0, 2.0), rel=0.1)
    assert fit.off == pytest.approx(0.01, rel=0.2)


@pytest.mark.parametrize(
    ("response", "says"),
    [
        (StepResponse((0, 1, 2), (0, 0, 0), (0.1, 0.1, 0.1)), "the output changes 0 times, not once"),
        (StepResponse((0, 1, 2), (0, 1, 0), (0.1, 0.1, 0.1)), "the output changes 2 times, not once"),
        (StepResponse((0, 1, 2), (0, 1, 1), (0.1, 0.1, 0.1)), "2 samples after the step, at least 5 needed"),
        (recorded(FirstOrder(-0.6, 5.0, 2.0)), "the error rises with the output: the lever's sign is wrong"),
        (recorded(FirstOrder(0.01, 5.0, 2.0), noise=0.01), "within its noise of"),
        (recorded(FirstOrder(0.6, 30.0, 2.0), until_s=30.0), r"ends at \d+ % of the response \(lag 3"),
    ],
)
def test_a_recording_that_gives_no_plant_is_refused(response: StepResponse, says: str) -> None:
    with pytest.raises(ResponseError, match=f"^a step response: .*{says}"):
        fit_step(response)


@pytest.mark.parametrize("accumulates", [True, False])
@pytest.mark.parametrize("form", list(Form))
def test_simc_is_stable_with_room_on_plants_of_all_shapes(form: Form, *, accumulates: bool) -> None:
    for lag_s in (0.0, 0.2, 1.0, 3.0, 10.0, 30.0):
        for delay_s in (0.0, 0.5, 1.0, 2.0, 5.0, 10.0):
            plant = FirstOrder(1.3, lag_s, delay_s)
            if not accumulates and lag_s == 0.0 and not form.integrates:
                with pytest.raises(GainsError, match="needs an integral"):
                    tuned(plant, 1.0, form, accumulates=False)
                continue
            gains = tuned(plant, 1.0, form, accumulates=accumulates)
            margin = margin_of(gains, plant.sampled(1.0, accumulates=accumulates))
            assert margin.is_stable, (plant, gains)
            assert margin.stable_to is not None
            assert margin.stable_to > 1.6, (plant, gains)
            assert margin.distance is not None
            assert margin.distance > 0.4, (plant, gains)


def test_simc_by_hand() -> None:
    """Kc = tau / (k (tau_c + theta)), tau_I = min(tau, 4 (tau_c + theta)): theta is 2 s and half a period."""
    gains = tuned(FirstOrder(2.0, 30.0, 2.0), 1.0, Form.PI, accumulates=False)
    assert gains.kp == pytest.approx(30.0 / (2.0 * 5.0))
    assert gains.ki == pytest.approx(gains.kp / 20.0)


@pytest.mark.parametrize(
    ("plant", "samples"),
    [
        (FirstOrder(1.0, 0.0, 0.9), 0),  # complete at the next sample
        (FirstOrder(1.0, 0.0, 1.0), 1),
        (FirstOrder(1.0, 0.01, 0.9), 0),
        (FirstOrder(1.0, 5.0, 0.9), 1),
        (FirstOrder(1.0, 5.0, 2.0), 2),
        (FirstOrder(1.0, 5.0, 2.1), 3),
    ],
)
def test_a_delay_between_two_samples_is_seen_at_one_of_them(plant: FirstOrder, samples: int) -> None:
    assert plant.sampled(1.0).delay_samples == samples


@pytest.mark.parametrize(
    ("plant", "period_s", "says"),
    [
        (FirstOrder(float("nan"), 1.0, 0.0), 1.0, "the plant's gain is nan, not a finite number above 0"),
        (FirstOrder(1.0, 1.0, 60.0), 1.0, "a delay of 60 s is 60 samples of 1 s: at most 50"),
        (FirstOrder(1.0, 5.0, 0.0), 1e-9, r"the plant's lag is 5e\+09 samples, at most 10000: sample less often"),
        (FirstOrder(1.0, 5.0, 0.0), 0.0, "the period is 0 s, not a finite number above 0"),
    ],
)
def test_plants_that_no_loop_can_follow_are_refused(plant: FirstOrder, period_s: float, says: str) -> None:
    with pytest.raises(GainsError, match=f"^{says}$"):
        tuned(plant, period_s, Form.PI)


def test_a_slower_loop_has_smaller_gains() -> None:
    plant = FirstOrder(1.0, 5.0, 2.0)
    assert tuned(plant, 1.0, Form.PI, speed_s=20.0).kp < tuned(plant, 1.0, Form.PI).kp


def test_ziegler_and_nichols_by_hand() -> None:
    """P: kp = lag / (gain delay); the delay is 4 s and the period's second."""
    gains = tuned(FirstOrder(2.0, 30.0, 4.0), 1.0, Form.P, TuningRule.ZIEGLER_NICHOLS, accumulates=False)
    assert (gains.kp, gains.ki, gains.kd) == pytest.approx((3.0, 0.0, 0.0))


def test_a_csv_of_a_step_is_read(tmp_path: Path) -> None:
    file = tmp_path / "step.csv"
    file.write_text("time_s,unit,output,error\n0,gpu0,0,0.4\n1,gpu0,1,0.3\n")
    assert read_response(file) == StepResponse((0.0, 1.0), (0.0, 1.0), (0.4, 0.3), str(file))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time_s,error\n", "step.csv:1: no column output; expected: time_s, output, error"),
        ("", "step.csv:1: no column time_s; expected: time_s, output, error"),
        ("time_s,output,error\n0,0,x\n", "step.csv:2: error: 'x' is not a finite number"),
        ("time_s,output,error\n0,0,0.4\n1,nan,0\n", "step.csv:3: output: 'nan' is not a finite number"),
        ("time_s,output,error\n0,0,0.4\n1\n", "step.csv:3: output: None is not a finite number"),
        ("time_s,output,error\n0,0,1.4\n", "step.csv:2: error: 1.4 is not between -1 and 1"),
        (
            "time_s,output,error\n0,0," + "9" * 200_000,
            "step.csv:2: invalid CSV: field larger than field limit (131072)",
        ),
        ("time_s,output,error\n1,0,0.4\n1,0,0.4\n", "step.csv:3: time_s: 1 is not later than 1"),
    ],
)
def test_a_wrong_csv_is_refused_by_file_and_line(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "step.csv"
    file.write_text(text)
    with pytest.raises(ResponseError) as caught:
        read_response(file)
    assert str(caught.value).endswith(says)


def test_a_csv_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ResponseError, match=r"none\.csv: No such file or directory"):
        read_response(tmp_path / "none.csv")
