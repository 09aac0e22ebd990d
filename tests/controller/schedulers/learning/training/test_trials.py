"""Training, trying and comparing in virtual time, on drawn inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.workloads.errors import WorkloadError
from controller.schedulers.learning.agent.agents import agent_of, new_checkpoint
from controller.schedulers.learning.agent.records import load_checkpoint
from controller.schedulers.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.inputs.bursty import BurstySettings
from controller.schedulers.learning.inputs.systems import PoolSystem
from controller.schedulers.learning.training.figures import Figures, Tally
from controller.schedulers.learning.training.given import Given, LearningSettings, load_settings, read_given
from controller.schedulers.learning.training.trials import (
    Point,
    Timed,
    attention_of,
    best_rule,
    evaluate,
    greedy,
    train,
)
from controller.schedulers.learning.values import Step

AGENT = AgentSettings(
    network=NetworkSettings(form="tokens", hidden=8, heads=2, layers=1, feed_forward=8, dropout=0.0),
    training=TrainingSettings(buffer=32, batch=8, batches=2, publish_every=64, optimiser="adam", learning_rate=0.001),
    seed=3,
)
SETTINGS = LearningSettings(agent=AGENT, bursty=BurstySettings(tasks=150, objects=256, system=PoolSystem(nodes=4)))
LOG = "".join(
    f"{n} {n * 10} -1 {60 + 7 * n % 50} {1 + n % 4} -1 -1 -1 -1 -1 1 1 1 1 1 -1 -1 -1\n" for n in range(1, 40)
)


@pytest.fixture
def given() -> Given[Any]:
    return read_given("bursty", SETTINGS, 1)


def _trained(given: Given[Any], path: Path) -> list[Point]:
    agent = agent_of(new_checkpoint(AGENT, given.environment.start(1)), given.rules(1)["data-local"], "inline")
    points = list(train(given, agent, episodes=2, seed=1, every=100))
    agent.save(path)
    return points


def test_same_seed_gives_same_agent_and_same_curve(given: Given[Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    first = _trained(given, tmp_path / "a")
    again = _trained(read_given("bursty", SETTINGS, 1), tmp_path / "b")
    assert first == again
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [(one.decisions, one.episode) for one in first] == [(100, 0), (150, 0), (250, 1), (300, 1)]
    assert first[-1].version > 0
    assert first[-1].steps > 0


def test_a_trained_network_decides_when_it_is_tried(given: Given[Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _trained(given, tmp_path / "a")
    agent = greedy(given, load_checkpoint(tmp_path / "a"), given.rules(1)["data-local"])
    found = evaluate(given, agent, 1)
    assert dict(agent.decider.counts) == {"network": 150}
    assert found.decisions == 150
    assert found == evaluate(given, agent, 1)


def test_an_untrained_agent_is_its_fallback(given: Given[Any]) -> None:
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    fresh = new_checkpoint(flat, given.environment.start(1))
    agent = greedy(given, fresh, given.rules(1)["round-robin"])
    assert evaluate(given, agent, 1) == evaluate(given, given.rules(1)["round-robin"], 1)
    assert agent.decider.counts["untrained"] == 150


def test_checkpoint_of_other_nodes_is_refused(given: Given[Any]) -> None:
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    other = LearningSettings(bursty=BurstySettings(tasks=5, system=PoolSystem(nodes=5)))
    fresh = new_checkpoint(flat, read_given("bursty", other, 1).environment.start(1))
    with pytest.raises(LearningError, match="4 actions"):
        greedy(given, fresh, given.rules(1)["random"])


def test_fallback_is_the_best_rule_that_does_not_foretell(given: Given[Any]) -> None:
    figures = {name: evaluate(given, rule, 1).mean_response_ns for name, rule in given.rules(1).items()}
    best = best_rule(given, 1)
    assert best not in {"random", "earliest-finish"}
    assert all(figures[best] <= figures[name] for name in figures.keys() - {"random", "earliest-finish"})
    assert best_rule(given, 1, "random") == "random"
    with pytest.raises(LearningError, match="no rule 'best': it has random, round-robin"):
        best_rule(given, 1, "best")


def test_utilisation_is_held_time_of_slots_over_all() -> None:
    step = Step(None, 2.0, 0, wait_ns=10, latency_ns=20, response_ns=60, submitted_ns=0)
    tally = Tally()
    tally.add(step)
    tally.add(replace(step, submitted_ns=40, wait_ns=0, response_ns=60, reward=4.0))
    # 50 and 60 ns are held of 2 slots for the 100 ns from the first submission to the last end.
    assert tally.of_pool(2) == Figures(2, 5.0, 60.0, 110 / 200, 20.0, 3.0)


def test_batch_logs_are_judged_by_real_starts(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG)
    given = read_given(f"swf:{tmp_path}/log.swf", LearningSettings(), 0)
    found = evaluate(given, given.rules(0)["easy"], 0)
    environment = given.environment
    assert found.mean_wait_ns == environment.view.outcome().mean_wait_ns
    assert found.mean_response_ns == environment.view.outcome().mean_response_ns
    assert found.decisions == 39


@pytest.mark.parametrize("text", ["blocks", "bursty:file", "what:file", ""])
def test_inputs_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(LearningError, match="it is one of blocks:FILE"):
        read_given(text, LearningSettings(), 0)


def test_malformed_trace_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG + "1 2 what\n")
    with pytest.raises(WorkloadError, match=r"log\.swf.*40"):
        read_given(f"swf:{tmp_path}/log.swf", LearningSettings(), 0)


@pytest.mark.parametrize(
    ("text", "why"), [("agent: {network: {hidden: 63}}", "hidden: 63"), ("bursty: {tasks: 0}", "tasks is 0")]
)
def test_wrong_settings_name_file_and_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "learning.yaml"
    path.write_text(text)
    with pytest.raises(LearningError, match=rf"learning\.yaml: .*{why}"):
        load_settings(path)


def test_decisions_are_timed_by_the_clock_that_is_given(given: Given[Any]) -> None:
    ticks = iter(range(0, 10**6, 5))
    timed = Timed(given.rules(1)["round-robin"], lambda: next(ticks))
    evaluate(given, timed, 1)
    assert timed.took_ns == [5] * 150
    assert timed.percentile_ns(99) == 5


def test_attention_is_a_mean_whose_rows_sum_to_one(given: Given[Any]) -> None:
    fresh = new_checkpoint(AGENT, given.environment.start(1))
    found = attention_of(given, fresh, given.rules(1)["round-robin"], 1, 10)
    assert found.shape == (1, 2, 4, 4)
    assert found.sum(axis=-1) == pytest.approx(1)
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    with pytest.raises(LearningError, match="only tokens has"):
        attention_of(given, new_checkpoint(flat, given.environment.start(1)), given.rules(1)["random"], 1, 10)
