"""The guard: beyond the range of features seen in training the fallback decides."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from controller.learning.agent.agents import agent_of, new_checkpoint
from controller.learning.agent.records import load_checkpoint
from controller.learning.agent.settings import (
    AgentSettings,
    DecisionSettings,
    Form,
    NetworkSettings,
    TrainingSettings,
)
from controller.learning.agent.weights import HIGH, LOW, WeightSet
from controller.learning.values import Experience, Observation

Observe = Callable[..., Observation]
Live = Callable[..., Experience]
FREE = 4
"""Place of the first action's free memory in a row, and of an action's in a token."""


class _Last:
    def choose(self, observation: Observation, view: None) -> int:
        return int(np.flatnonzero(observation.candidates)[-1])


def _settings(form: Form, guard: float | None) -> AgentSettings:
    return AgentSettings(
        network=NetworkSettings(form=form, hidden=8, heads=2, layers=1, feed_forward=8, dropout=0.0, guard=guard),
        training=TrainingSettings(buffer=32, batch=16, batches=2, publish_every=32),
        decisions=DecisionSettings(exploration=0.0, precision="float32", guard_hold=2),
    )


def _middle(weights: WeightSet, form: Form) -> Observation:
    """Return an observation of four actions in the middle of the range of each feature."""
    row = (weights.arrays[LOW] + weights.arrays[HIGH]) / 2
    if form == "tokens":
        row = np.concatenate([row[:4], np.repeat(row[4:], 4)])
    return Observation(row.astype(np.float32), np.ones(4, np.bool_))


def _with_free(observation: Observation, action: int, free: float) -> Observation:
    row = observation.row.copy()
    row[FREE + action] = free
    return Observation(row, observation.candidates)


@pytest.mark.parametrize("form", ["flat", "tokens", "dense"])
def test_fallback_decides_beyond_the_trained_range(observe: Observe, live: Live, tmp_path: Path, form: Form) -> None:
    """Seen free memory is at most 0.5; the guard is 0.1 wide; the range survives a checkpoint."""
    generator = np.random.default_rng(1)
    agent = agent_of(new_checkpoint(_settings(form, 0.1), observe(generator), "nodes"), _Last())
    for _ in range(32):
        lived = live(generator)
        row = lived.observation.row.copy()
        row[FREE : FREE + 4] = row[FREE : FREE + 4] / 2
        agent.learn(replace(lived, observation=Observation(row, lived.observation.candidates)))
    agent.save(tmp_path / "guarded")
    again = agent_of(load_checkpoint(tmp_path / "guarded"), _Last(), "none")
    assert again.published.weights.to_bytes() == agent.published.weights.to_bytes()
    most = float(agent.published.weights.arrays[HIGH][FREE])
    assert 0.4 < most <= 0.5
    middle = _middle(agent.published.weights, form)
    for each in (agent, again):
        assert each.decide(middle, None).source == "network"
        assert each.decide(_with_free(middle, 0, most + 0.09), None).source == "network"
        beyond = each.decide(_with_free(middle, 0, most + 0.11), None)
        assert (beyond.source, beyond.reason, beyond.action) == ("fallback", "unfamiliar", 3)
        # The fallback holds two more decisions, and is renewed by each that is beyond.
        reasons = [each.decide(middle, None).reason for _ in range(3)]
        assert reasons == ["unfamiliar", "unfamiliar", ""]


def test_guard_of_tokens_looks_at_candidates_alone(observe: Observe, live: Live) -> None:
    generator = np.random.default_rng(2)
    agent = agent_of(new_checkpoint(_settings("tokens", 0.0), observe(generator), "nodes"), _Last())
    for _ in range(32):
        agent.learn(live(generator))
    middle = _middle(agent.published.weights, "tokens")
    odd = _with_free(Observation(middle.row, np.array([False, True, True, True])), 0, 1.0)
    assert agent.decide(odd, None).source == "network"
    assert agent.decide(Observation(odd.row, np.ones(4, np.bool_)), None).reason == "unfamiliar"


def test_guard_changes_no_value_within_the_range(observe: Observe, live: Live) -> None:
    """The same experience gives the same weights, whether ranges are kept or not."""
    weights = []
    for guard in (None, 0.0):
        generator = np.random.default_rng(3)
        agent = agent_of(new_checkpoint(_settings("tokens", guard), observe(generator), "nodes"), _Last())
        for _ in range(64):
            agent.learn(live(generator))
        weights.append(agent.published.weights)
    assert weights[0].version == weights[1].version > 0
    for name, array in weights[0].arrays.items():
        assert np.array_equal(array, weights[1].arrays[name])
