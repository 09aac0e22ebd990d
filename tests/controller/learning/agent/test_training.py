"""Decisions never wait for training, whether it is killed, slow or gone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from controller.learning.agent import agents
from controller.learning.agent.agents import Agent, Where, agent_of, new_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.learning.agent.training.channel import TrainerMessage, hear, pair, tell
from controller.learning.agent.training.thread import ThreadTraining
from controller.learning.errors import LearningError
from controller.learning.values import Experience, Observation
from tests.waiting import wait_until

Observe = Callable[..., Observation]
Live = Callable[..., Experience]
SETTINGS = AgentSettings(
    network=NetworkSettings(hidden=16, feed_forward=16, deviation=0.1),
    training=TrainingSettings(buffer=32, batch=8, batches=4, publish_every=32, backlog=64),
)
WITHIN_S = 120.0


class First:
    """A fallback that takes the first action."""

    def choose(self, observation: Observation, view: None) -> int:
        return 0


@pytest.fixture
def start(observe: Observe) -> Iterator[Callable[[Where], Agent[None]]]:
    agents: list[Agent[None]] = []

    def make(where: Where) -> Agent[None]:
        agents.append(agent_of(new_checkpoint(SETTINGS, observe(np.random.default_rng(1)), "nodes"), First(), where))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


@pytest.mark.parametrize("where", ["thread", "process"])
def test_background_training_gives_the_inline_weights(
    start: Callable[[Where], Agent[None]], live: Live, where: Where
) -> None:
    agents = [start("inline"), start(where)]
    generator = np.random.default_rng(2)
    lived = [live(generator) for _ in range(40)]
    records = []
    for agent in agents:
        for experience in lived:
            agent.learn(experience)
        records.append(agent.training.record(WITHIN_S))
    assert records[0][0].version == records[1][0].version == 1
    assert records[0][0].to_bytes() == records[1][0].to_bytes()
    assert records[0][1] == records[1][1]
    wait_until(lambda: agents[1].published.weights.version == 1)
    assert agents[1].published.weights.to_bytes() == agents[0].published.weights.to_bytes()


def test_thread_that_lags_drops_the_newest_and_counts_it(start: Callable[[Where], Agent[None]], live: Live) -> None:
    agent = start("thread")
    assert isinstance(agent.training, ThreadTraining)
    go_on: list[bool] = []
    agent.training._backlog.ask(lambda _: wait_until(lambda: bool(go_on)))
    lived = live(np.random.default_rng(5))
    for _ in range(100):
        agent.learn(lived)
    assert agent.status.dropped >= 100 - SETTINGS.training.backlog
    go_on.append(True)
    agent.training.record(WITHIN_S)
    assert agent.status.decisions + agent.status.dropped == 100


def test_urgent_question_is_answered_before_the_backlog(start: Callable[[Where], Agent[None]], live: Live) -> None:
    agent = start("thread")
    assert isinstance(agent.training, ThreadTraining)
    seen: list[int] = []
    go_on: list[bool] = []
    agent.training._backlog.ask(lambda _: wait_until(lambda: bool(go_on)))
    lived = live(np.random.default_rng(5))
    for _ in range(10):
        agent.learn(lived)
    agent.training._backlog.ask(lambda learner: seen.append(learner.decisions), at_once=True)
    go_on.append(True)
    agent.training.record(WITHIN_S)
    assert seen == [0]
    assert agent.status.decisions == 10


def test_published_weights_are_replaced_as_a_whole(start: Callable[[Where], Agent[None]], live: Live) -> None:
    agent, generator = start("inline"), np.random.default_rng(6)
    seen = agent.published
    before = seen.weights.to_bytes()
    for _ in range(32):
        agent.learn(live(generator))
    assert agent.published is not seen
    assert seen.weights.to_bytes() == before
    assert agent.published.inference.version == agent.published.weights.version == 1


def test_memory_that_is_handed_over_cannot_be_changed() -> None:
    ours, theirs = pair()
    with ours, theirs:
        tell(ours, TrainerMessage("weights", 3), b"weights")
        assert hear(theirs) == (TrainerMessage("weights", 3), b"weights")
        ours.close()
        assert hear(theirs) is None


def test_agent_without_pytorch_decides_but_cannot_train(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "find_spec", lambda name: None)
    checkpoint = msgspec.structs.replace(
        new_checkpoint(SETTINGS, observe(np.random.default_rng(7)), "nodes"), version=1
    )
    assert agent_of(checkpoint, First(), "none").decide(observe(np.random.default_rng(8)), None).version == 1
    with pytest.raises(LearningError, match=r"pip install 'millrace-net\[train\]'"):
        agent_of(checkpoint, First(), "process")
