"""An agent that learns: departures of its training, and a process that trains and is killed, or stands still."""

from __future__ import annotations

import importlib.util
import os
import signal
import time

import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from collections.abc import Callable
from pathlib import Path
from threading import Timer

from controller.learning.agent.agents import Agent, Where, new_checkpoint
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.settings import Form
from controller.learning.agent.training.process import ProcessTraining
from controller.learning.errors import LearningError
from tests.controller.apps.cli.test_learning_interrupted import interrupted, train
from tests.controller.learning.agent.conftest import Live, Observe, _one_thread, live, observe
from tests.controller.learning.agent.test_known_values import VALUES, chain_values
from tests.controller.learning.agent.test_learner import bandit_errors
from tests.controller.learning.agent.test_training import SETTINGS, WITHIN_S, start
from tests.waiting import wait_until

__all__ = ["_one_thread", "live", "observe", "start", "train"]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("form", "network", "training"),
    [
        ("flat", {"quantiles": 5}, {"loss": "huber"}),
        ("flat", {}, {"double": True, "optimiser": "sgd", "momentum": 0.5, "loss": "squared", "clip": 1.0}),
        ("tokens", {}, {"remove_sampled": False, "train_every": 16, "prioritised": 0.6}),
    ],
    ids=str,
)
def test_every_departure_learns_which_action_pays(
    observe: Observe, form: Form, network: dict[str, object], training: dict[str, object]
) -> None:
    """A bandit's error halves at least."""
    errors = bandit_errors(observe, form, network, training)
    assert errors[-1] < errors[40] / 2


@pytest.mark.parametrize(
    ("form", "network", "training"),
    [
        ("dense", {}, {}),
        ("flat", {}, {"loss": "criticality"}),
        ("tokens", {}, {"loss": "squared", "clip": 1.0}),
        ("dense", {}, {"optimiser": "sgd", "learning_rate": 0.05, "momentum": 0.9}),
        ("dense", {}, {"double": True}),
        ("dense", {}, {"prioritised": 0.8, "importance": 1.0}),
        ("dense", {"quantiles": 5}, {}),
        ("dense", {}, {"precision": "bfloat16"}),
    ],
    ids=str,
)
def test_values_of_a_chain_are_learned_with_each_departure(
    form: Form, network: dict[str, object], training: dict[str, object]
) -> None:
    assert np.allclose(chain_values(form, network, training, 1600), VALUES, atol=0.05)


def test_killed_process_restarts_with_the_published_weights(observe: Observe, live: Live) -> None:
    checkpoint = new_checkpoint(SETTINGS, observe(np.random.default_rng(3)), "nodes")
    training = ProcessTraining(checkpoint, lambda policy: inference_of(policy, SETTINGS.decisions), first_wait_s=0.01)
    try:
        generator = np.random.default_rng(3)
        for _ in range(32):
            training.give(live(generator))
        training.record(WITHIN_S)
        wait_until(lambda: training.published.weights.version == 1)
        first = training.published.weights.to_bytes()
        os.kill(training.process_id, signal.SIGKILL)
        wait_until(lambda: training.status.restarts == 1)
        assert training.published.weights.to_bytes() == first
        assert training.status.problem == "training process: killed by SIGKILL"
        for _ in range(32):
            training.give(live(generator))
        training.record(WITHIN_S)
        wait_until(lambda: training.published.weights.version == 2)
    finally:
        training.close()


def test_stalled_process_blocks_nobody_and_losses_are_counted(
    start: Callable[[Where], Agent[None]], live: Live, observe: Observe
) -> None:
    agent = start("process")
    assert isinstance(agent.training, ProcessTraining)
    os.kill(agent.training.process_id, signal.SIGSTOP)
    try:
        generator = np.random.default_rng(4)
        batch = live(generator, 64)
        # 10 MB are more than the socket holds: a `give` that waited would never return.
        for _ in range(5_000):
            agent.learn(batch)
        assert agent.status.dropped > 0
        assert agent.decide(observe(generator), None).reason == "untrained"
        assert agent.published.weights.version == 0
    finally:
        os.kill(agent.training.process_id, signal.SIGCONT)


def test_question_to_a_killed_process_ends_early(start: Callable[[Where], Agent[None]], live: Live) -> None:
    agent = start("process")
    assert isinstance(agent.training, ProcessTraining)
    agent.learn(live(np.random.default_rng(5)))
    killed = Timer(1.0, os.kill, (agent.training.process_id, signal.SIGKILL))
    os.kill(agent.training.process_id, signal.SIGSTOP)
    killed.start()
    began_s = time.monotonic()
    with pytest.raises(LearningError, match="training reported no state"):
        agent.training.record(WITHIN_S)
    assert time.monotonic() - began_s < WITHIN_S / 2


def test_sigterm_keeps_what_a_process_learned(train: list[str], tmp_path: Path) -> None:
    kept = tmp_path / "kept.ckpt"
    status, _, output = interrupted([*train, "--episodes", "1000", "--where", "process"], kept, signal.SIGTERM)
    assert status == 143, output
    assert f"interrupted: continue with --resume {kept} --episodes " in output
    assert "it was restarted 0 times" in output
