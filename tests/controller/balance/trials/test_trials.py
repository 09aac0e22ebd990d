"""Settling time, overshoot and steady error of each form on step, ramp, burst and noisy loads."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from controller.balance.control.controller import ControlSettings
from controller.balance.control.pid import PidSettings
from controller.balance.errors import BalanceError, PlantError
from controller.balance.plants import Plant
from controller.balance.rules import TABLE
from controller.balance.trials.picture import draw_trials
from controller.balance.trials.trial import Ground, LoadKind, Trial, trials, usual_controllers
from controller.balance.values import Form

CONTROLLERS = usual_controllers()
STEADY = (LoadKind.STEP, LoadKind.RAMP)


@pytest.fixture(scope="module")
def usual_trials() -> dict[tuple[LoadKind, str], Trial]:
    return {(trial.load, trial.controller): trial for trial in trials(CONTROLLERS, Ground())}


@pytest.mark.parametrize("controller", list(CONTROLLERS))
@pytest.mark.parametrize("load", [LoadKind.STEP, LoadKind.RAMP, LoadKind.BURST])
def test_every_form_settles_and_moves_no_lever_then(
    usual_trials: dict[tuple[LoadKind, str], Trial], load: LoadKind, controller: str
) -> None:
    trial = usual_trials[load, controller]
    low, high = TABLE.dead_band
    assert trial.figures.settle_s is not None
    assert trial.figures.settle_s <= 60.0
    assert trial.figures.overshoot <= 0.25
    assert low <= trial.figures.steady_error <= high
    assert trial.late_moves == 0


@pytest.mark.parametrize("controller", list(CONTROLLERS))
def test_a_noisy_load_is_balanced_in_the_mean(usual_trials: dict[tuple[LoadKind, str], Trial], controller: str) -> None:
    figures = usual_trials[LoadKind.NOISY, controller].figures
    assert abs(figures.steady_error) < 0.05
    assert figures.mean_error < 0.06


def test_p_leaves_a_steady_error_that_an_integral_removes(usual_trials: dict[tuple[LoadKind, str], Trial]) -> None:
    for load in STEADY:
        error = {form: abs(usual_trials[load, form].figures.steady_error) for form in Form}
        assert max(error[Form.PI], error[Form.PID]) < min(error[Form.P], error[Form.PD])
        assert min(error[Form.P], error[Form.PD]) > 0.05


def test_derivative_answers_jumps_most_and_moves_under_noise(
    usual_trials: dict[tuple[LoadKind, str], Trial],
) -> None:
    first = {form: float(usual_trials[LoadKind.STEP, form].trajectory.output.max()) for form in (Form.P, Form.PD)}
    assert first[Form.PD] > first[Form.P] + 0.15
    late = {form: usual_trials[LoadKind.NOISY, form].late_moves for form in Form}
    assert late[Form.P] == late[Form.PI] == 0
    assert late[Form.PD] > 0


def test_integral_without_a_threshold_creeps() -> None:
    law = PidSettings(form=Form.PI, kp=1.0, ki=0.05)
    ground = Ground(Plant(delay_s=5.0))
    (creeping,) = trials({"PI": ControlSettings(pid=law)}, ground, [LoadKind.STEP])
    (resting,) = trials({"PI": CONTROLLERS["PI"]}, ground, [LoadKind.STEP])
    assert creeping.late_moves > 0
    assert resting.late_moves == 0


def test_trials_are_the_same_each_time(usual_trials: dict[tuple[LoadKind, str], Trial]) -> None:
    (again,) = trials({"P": CONTROLLERS["P"]}, Ground(), [LoadKind.NOISY])
    assert again.figures == usual_trials[LoadKind.NOISY, "P"].figures


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(PlantError, match=r"^a trial of 100 samples: at least 140 needed$"):
        Ground(samples=100)


def test_a_picture_shows_error_output_and_levers_of_each(
    usual_trials: dict[tuple[LoadKind, str], Trial], tmp_path: Path
) -> None:
    picture = tmp_path / "trials.svg"
    draw_trials(picture, [usual_trials[kind, name] for kind in STEADY for name in CONTROLLERS])
    text = " ".join(ET.parse(picture).getroot().itertext())
    wanted = ("error", "output u", "sub-units", *CONTROLLERS, *(f"{kind} load" for kind in STEADY))
    assert all(part in text for part in wanted)
    with pytest.raises(BalanceError, match=r"a picture's name ends in \.png or \.svg"):
        draw_trials(tmp_path / "trials.pdf", [usual_trials[LoadKind.STEP, "P"]])
