"""An agent on the worst inputs: nodes that vanish and join, missing data, unreachable nodes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from controller.learning.agent.agents import Agent, agent_of, new_checkpoint
from controller.learning.agent.settings import AgentSettings, Form, NetworkSettings, TrainingSettings
from controller.learning.environment.pool import Pool
from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import Change, System, Task, Workload
from controller.learning.environment.view import PoolView, Refusal
from controller.learning.errors import LearningError
from controller.learning.heuristics.pool import RoundRobin
from controller.learning.values import Experience, Observation
from tests.controller.learning.environment.pools import (
    PLAIN,
    closed,
    cpu,
    drawn_system,
    drawn_workload,
    node,
    reads,
    system,
)


def _agent(form: Form, seen: Observation) -> Agent[PoolView]:
    settings = AgentSettings(
        network=NetworkSettings(form=form, hidden=8, heads=2, layers=1, feed_forward=8),
        training=TrainingSettings(buffer=32, batch=8, batches=4, publish_every=32),
    )
    return agent_of(new_checkpoint(settings, seen, "nodes"), RoundRobin())


def _play(pool: Pool, agent: Agent[PoolView], seed: int = 0) -> Iterator[tuple[Observation, int]]:
    """Yield observations and choices; the pool refuses invalid candidates."""
    seen: Observation | None = pool.start(seed)
    while seen is not None:
        action = agent.choose(seen, pool.view)
        step = pool.step(action)
        agent.learn(Experience(seen, action, step.reward, step.observation, step.elapsed_ns))
        yield seen, action
        seen = step.observation


def _pools() -> Iterator[Pool]:
    """Yield pools of different sizes with vanishing nodes and missing links, whose tasks read missing data."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        pool = Pool(drawn_system(rng), drawn_workload(rng), PoolSettings())
        try:
            pool.start(0)
        except LearningError:
            continue  # nothing can run
        yield pool


def test_tokens_form_learns_on_systems_of_any_size_with_faults() -> None:
    pools = list(_pools())
    agent = _agent("tokens", pools[0].start(0))
    decisions = sum(1 for pool in pools for _ in _play(pool, agent))
    assert len({pool.actions for pool in pools}) > 2
    assert {reason for pool in pools for reason in pool.refusals.values()} >= {Refusal.NO_DATA, Refusal.NO_ENGINE}
    assert agent.status.decisions == decisions
    assert agent.status.refused == 0
    assert agent.status.steps > 10
    assert agent.published.weights.is_finite
    assert agent.decider.counts["network"] > decisions / 2


def test_flat_form_leaves_systems_of_other_sizes_to_the_fallback() -> None:
    pools = list(_pools())
    agent = _agent("flat", pools[0].start(0))
    decisions = {pool: sum(1 for _ in _play(pool, agent)) for pool in pools}
    fit = sum(count for pool, count in decisions.items() if pool.actions == pools[0].actions)
    assert 0 < fit < sum(decisions.values())
    assert agent.status.refused == sum(decisions.values()) - fit
    assert agent.decider.counts["does not fit"] + agent.decider.counts["untrained"] >= agent.status.refused
    assert agent.published.weights.is_finite


@pytest.mark.parametrize("form", ["flat", "tokens"])
def test_vanished_node_is_chosen_only_after_it_rejoins(form: Form) -> None:
    base = system(node("a", cpu()), node("b", cpu()), node("pool", slow_bytes=1_000_000))
    there = [Change(3_000_000, "a", is_there=False), Change(6_000_000, "a", is_there=True)]
    tasks = [Task(100_000 * number, reads=(number % 4,)) for number in range(100)]
    pool = Pool(System(base.nodes, base.network, tuple(there)), Workload.of(tasks, [400] * 4), PLAIN)
    agent = _agent(form, pool.start(0))
    chosen: list[list[int]] = [[], [], []]
    for number, (seen, action) in enumerate(_play(pool, agent)):
        chosen[(number >= 30) + (number >= 60)].append(action)
        assert seen.candidates[0] == (not 30 <= number < 60)
    assert set(chosen[1]) == {1}
    assert {0, 1} == set(chosen[0]) == set(chosen[0] + chosen[2])
    assert agent.status.refused == 0
    assert agent.published.weights.version == 3


def test_infinite_latency_closes_a_link_and_features_stay_finite() -> None:
    base = system(node("a", cpu()), node("b", cpu()), node("pool", slow_bytes=1_000_000))
    # From 50 us on the pool no longer reaches a.
    pool = Pool(closed(base, 2, 0, from_ns=50_000), reads(*range(0, 2_000_000, 20_000), size=400), PLAIN)
    agent = _agent("tokens", pool.start(0))
    for number, (seen, action) in enumerate(_play(pool, agent)):
        assert np.isfinite(seen.row).all()
        assert number < 3 or action == 1
    assert agent.status.refused == 0


def test_duplicates_that_fill_the_buffer_make_one_step() -> None:
    pool = Pool(system(node("a", cpu()), node("pool", slow_bytes=1000)), reads(0, size=100), PLAIN)
    seen = pool.start(0)
    agent = _agent("tokens", seen)
    for _ in range(32):
        agent.learn(Experience(seen, 0, 1.0, None))
    assert (agent.status.steps, agent.status.duplicates) == (1, 31)
    agent.learn(Experience(seen, 0, 1.0, None))
    assert agent.status.steps == 1


@pytest.mark.parametrize("device", ["cuda:77", "nothing"])
def test_training_on_a_device_that_is_not_there_is_one_line(device: str) -> None:
    pool = Pool(system(node("a", cpu()), node("pool", slow_bytes=1000)), reads(0, size=100), PLAIN)
    fresh = new_checkpoint(AgentSettings(network=NetworkSettings(hidden=8)), pool.start(0), "nodes")
    training = msgspec.structs.replace(fresh.settings.training, device=device)
    settings = msgspec.structs.replace(fresh.settings, training=training)
    with pytest.raises(LearningError, match=rf"^training\.device: '{device}': [^\n]+$"):
        agent_of(msgspec.structs.replace(fresh, settings=settings), RoundRobin())
