"""The discrete form literally, and what production needs around it."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from controller.balance.control.pid import PidSettings, PidState, literal, step
from controller.balance.errors import SampleError
from controller.balance.values import Form, Gains, Sample


def sample(time_s: float, error: float) -> Sample:
    """Return a sample of an error."""
    return Sample(time_s, bus=max(error, 0.0), load=max(-error, 0.0), unit="gpu0")


def outputs(settings: PidSettings, errors: Iterable[float]) -> list[float]:
    """Return the outputs for errors that come once a second."""
    state, found = PidState(), []
    for time_s, error in enumerate(errors):
        state, output = step(settings, state, sample(time_s, error))
        found.append(output)
    return found


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
    with pytest.raises(SampleError, match=r"^unit gpu0: its sample of 5 s is not newer than that of 5 s$"):
        step(PidSettings(), state, sample(5.0, 0.5))
