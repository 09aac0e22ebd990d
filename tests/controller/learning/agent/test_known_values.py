"""Learning of values known beforehand: of a chain with an exit, and the quantiles of a reward."""

from __future__ import annotations

import importlib.util

import msgspec
import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch

from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.learner import Learner
from controller.learning.agent.resuming import learner_of
from controller.learning.agent.settings import AgentSettings, Form, NetworkSettings, TrainingSettings
from controller.learning.values import Experience, Observation

REPLAY = TrainingSettings(
    buffer=48,
    batch=16,
    batches=1,
    publish_every=16,
    drop_duplicates=False,
    remove_sampled=False,
    train_every=2,
    optimiser="adam",
    learning_rate=0.005,
    loss="huber",
)
STATES = 3
VALUES = [[0.81, 0.5], [0.9, 0.5], [1.0, 0.5]]
"""Values of continuing and of leaving, discount 0.9: continuing pays 1, in the last state only; leaving pays 0.5."""


def _seen(state: int) -> Observation:
    """Return a state of the chain as a task's features: actions differ by free memory."""
    common = [float(state == number) for number in range(STATES)]
    return Observation.of(
        utilisation=common[0],
        operations=common[1],
        size=common[2],
        is_write=0.0,
        free=[0.0, 1.0],
        similarity=[0.0, 0.0],
        candidates=[True, True],
    )


def _learner(form: Form, network: dict[str, object], training: dict[str, object]) -> Learner:
    settings = AgentSettings(
        network=NetworkSettings(form=form, hidden=16, heads=2, layers=1, feed_forward=16, dropout=0.0, deviation=0.2),
        training=msgspec.structs.replace(REPLAY, **training),
    )
    settings = msgspec.structs.replace(settings, network=msgspec.structs.replace(settings.network, **network))
    return learner_of(new_checkpoint(settings, _seen(0), "nodes"))


def chain_values(
    form: Form, network: dict[str, object], training: dict[str, object], decisions: int
) -> list[list[float]]:
    """Return the published values of both actions in each state after random decisions."""
    learner, generator = _learner(form, network, training), np.random.default_rng(3)
    for _ in range(decisions):
        state, action = int(generator.integers(STATES)), int(generator.integers(2))
        is_last = state == STATES - 1
        reward = 0.5 if action else float(is_last)
        following = None if action or is_last else _seen(state + 1)
        learner.take(Experience(_seen(state), action, reward, following))
    inference = inference_of(learner.published, learner.settings.decisions)
    values_by_state = [inference.values(_seen(state)) for state in range(STATES)]
    return [values.tolist() for values in values_by_state if values is not None]


def test_values_of_a_chain_are_learned() -> None:
    """Each state is worth the discounted next one; tests/soak tries each departure from the specification."""
    values = chain_values("dense", {"quantiles": 3}, {"double": True, "prioritised": 0.6}, 1600)
    assert np.allclose(values, VALUES, atol=0.05)


def test_quantiles_of_a_reward_are_learned() -> None:
    """0, 10, 20 or 30 with equal probability: these are the four quantiles, and decisions use their mean."""
    learner = _learner("dense", {"quantiles": 4}, {"learning_rate": 0.02, "half_steps": 300, "discount": 0.0})
    for number in range(1600):
        learner.take(Experience(_seen(0), 0, 10.0 * (number % 4), None))
    with torch.no_grad():
        quantiles = learner._fixed(torch.from_numpy(_seen(0).flat())[None, None])[0, 0].tolist()
    assert quantiles == pytest.approx([0, 10, 20, 30], abs=2)
    values = inference_of(learner.published, learner.settings.decisions).values(_seen(0))
    assert values is not None
    assert values[0] == pytest.approx(np.mean(quantiles), abs=1e-3)
