"""Loops whose gains change with each sample settle and stay stable; frozen gains cannot show that."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.control.controller import Controller, ControlSettings, Scheme
from controller.balance.control.fuzzy.adaptation import FuzzySettings, Method
from controller.balance.control.linear import LinearPlant
from controller.balance.control.pid import AntiWindup, Blocked, PidSettings
from controller.balance.control.tuning import FirstOrder, tuned
from controller.balance.errors import GainsError
from controller.balance.values import Form, Sample

STEPS = 500


def errors_in_adapted_loop(controller: Controller, plant: LinearPlant, pushed: float) -> list[float]:
    """Return the errors of a loop after one push, with gains adapted by the controller."""
    state, answer, levers, errors = controller.start(), 0.0, 0.0, []
    waiting = deque([0.0] * plant.delay_samples)
    for index in range(STEPS):
        error = min(max(pushed - answer, -1.0), 1.0)
        errors.append(error)
        state, output = controller.step(state, Sample(float(index), max(error, 0.0), max(-error, 0.0)))
        levers = levers + output.u if plant.accumulates else output.u
        waiting.append(levers)
        answer = plant.pole * answer + (1.0 - plant.pole) * plant.gain * waiting.popleft()
    return errors


def accepted(seed: int, scheme: Scheme) -> Iterator[ControlSettings]:
    """Yield tuned controllers on random plants where all adapted gains are stable."""
    rng = random.Random(seed)
    for _ in range(12):
        plant = FirstOrder(rng.uniform(0.05, 3.0), rng.choice([0.0, rng.uniform(0.0, 8.0)]), rng.uniform(0.0, 4.0))
        accumulates, form = rng.random() < 0.7, rng.choice(list(Form))
        try:
            gains = tuned(plant, 1.0, form, accumulates=accumulates)
            law = PidSettings(form=form, kp=gains.kp, ki=gains.ki, kd=gains.kd)
            yield ControlSettings(pid=law, scheme=scheme, plant=plant.sampled(1.0, accumulates=accumulates))
        except GainsError:
            continue


@pytest.mark.parametrize("scheme", [Scheme.EXPERT, Scheme.FUZZY])
def test_accepted_adaptive_loops_settle(scheme: Scheme) -> None:
    tried = list(accepted(7, scheme))
    assert len(tried) >= 8
    for settings in tried:
        assert settings.plant is not None
        late = errors_in_adapted_loop(Controller(settings), settings.plant, 0.5)[-50:]
        assert max(late) - min(late) < 2e-3, settings


@given(
    st.lists(st.tuples(st.floats(1e-6, 50.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0)), min_size=1, max_size=40),
    st.sampled_from(list(Scheme)),
    st.sampled_from(list(Form)),
    st.sampled_from(list(Method)),
    st.sampled_from(list(AntiWindup)),
    st.sampled_from(list(Blocked)),
)
def test_output_and_gains_stay_within_limits_for_any_samples(
    samples: list[tuple[float, float, float]],
    scheme: Scheme,
    form: Form,
    method: Method,
    anti_windup: AntiWindup,
    blocked: Blocked,
) -> None:
    law = PidSettings(form=form, kp=2.0, ki=0.4, kd=3.0, low=-0.9, high=0.7, period_s=5.0, anti_windup=anti_windup)
    controller = Controller(ControlSettings(pid=law, scheme=scheme, fuzzy=FuzzySettings(method=method)))
    state, now_s = controller.start(), 0.0
    for passed_s, bus, load in samples:
        now_s += passed_s
        state, output = controller.step(state, Sample(now_s, bus, load, "gpu0"), blocked)
        assert -0.9 <= output.u <= 0.7
        assert output.gains.kp <= 2.0 * 1.3
        assert output.gains.ki <= 0.4 * 1.5
        assert output.gains.kd <= 2.0 * 3.0 * 1.5
        assert form.integrates or state.pid.integral == 0.0
