"""The best of an agent's checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.learning.agent.agents import agent_of, new_checkpoint
from controller.learning.agent.records import Checkpoint, load_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.learning.environment.settings import PoolSettings
from controller.learning.inputs.bursty import BurstySettings
from controller.learning.inputs.systems import PoolSystem
from controller.learning.training.given import LearningSettings, read_given
from controller.learning.training.keeping import Best
from controller.learning.training.trials import evaluate, greedy, train

SETTINGS = LearningSettings(
    agent=AgentSettings(
        network=NetworkSettings(form="tokens", hidden=8, heads=2, layers=1, feed_forward=8, dropout=0.0),
        training=TrainingSettings(buffer=32, batch=8, batches=2, publish_every=64, optimiser="adam"),
    ),
    pool=PoolSettings(load_features=True),
    bursty=BurstySettings(tasks=100, objects=256, system=PoolSystem(nodes=4)),
)


def test_the_checkpoint_with_the_least_response_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    given = read_given("bursty", SETTINGS, 1)
    agent = agent_of(
        new_checkpoint(SETTINGS.agent, given.environment.start(1), given.kind), given.rules(1)["data-local"]
    )
    best, tried, kept = Best(given, 1, "data-local"), list[Checkpoint](), list[bool]()
    for _ in range(5):
        agent.save(tmp_path / "agent")
        tried.append(load_checkpoint(tmp_path / "agent"))
        kept.append(best.look_at(tried[-1]))
        list(train(given, agent, episodes=1, seed=1, every=100))
    # No trials before the first training step.
    assert kept[:2] == [False, True]
    means_ns = [
        evaluate(given, greedy(given, checkpoint, given.rules(1)["data-local"]), 1).mean_response_ns
        for checkpoint in tried[1:]
    ]
    assert len(set(means_ns)) > 1
    assert best.mean_response_ns == min(means_ns)
    assert best.checkpoint is tried[1 + means_ns.index(min(means_ns))]
