"""Training, trials and comparisons in virtual time, on random inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from controller.cluster.workloads.errors import WorkloadError
from controller.learning.agent.agents import Agent, agent_of, new_checkpoint
from controller.learning.agent.records import Checkpoint, load_checkpoint
from controller.learning.agent.settings import AgentSettings, NetworkSettings, TrainingSettings
from controller.learning.environment.values import Task, Workload
from controller.learning.errors import LearningError
from controller.learning.inputs.bursty import BurstySettings
from controller.learning.inputs.ordering import OrderingSettings
from controller.learning.inputs.systems import PoolSystem
from controller.learning.inputs.values import Graphs
from controller.learning.training.figures import Figures, Tally
from controller.learning.training.given import Given, LearningSettings, load_settings, read_given
from controller.learning.training.trials import (
    Point,
    Run,
    Timed,
    attention_of,
    best_rule,
    evaluate,
    greedy,
    train,
)
from controller.learning.values import Step

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
    agent = agent_of(new_checkpoint(AGENT, given.environment.start(1), "nodes"), given.rules(1)["data-local"], "inline")
    points = list(train(given, agent, episodes=2, seed=1, every=100))
    agent.save(path)
    return points


def test_same_seed_gives_same_agent_and_same_curve(given: Given[Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    first = _trained(given, tmp_path / "a")
    again = _trained(read_given("bursty", SETTINGS, 1), tmp_path / "b")
    assert first == again
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [(point.decisions, point.episode) for point in first] == [(100, 0), (150, 0), (250, 1), (300, 1)]
    assert first[-1].version > 0
    assert first[-1].steps > 0


def _run(given: Given[Any], checkpoint: Checkpoint) -> tuple[Run[Any], Agent[Any]]:
    agent = agent_of(checkpoint, given.rules(1)["round-robin"], "inline")
    return Run(given, agent, 1, "round-robin"), agent


@pytest.mark.parametrize(
    ("stops_at", "margin", "tolerance"),
    [
        (3, 0.0, 0.0),
        (149, 0.0, 0.0),
        (150, 0.0, 0.0),
        (170, 0.0, 0.0),
        (270, 0.01, 0.0),
        (270, 0.0, 0.1),
        (270, 0.01, 0.1),
    ],
)
def test_interrupted_training_continues_exactly(
    given: Given[Any], tmp_path: Path, stops_at: int, margin: float, tolerance: float
) -> None:
    """While the stateful fallback decides, at an episode's end, and while the network decides.

    With a margin or a tolerance the fallback is also asked along with the network; its state is from its own answers.
    """
    pytest.importorskip("torch")
    decisions = structs.replace(AGENT.decisions, margin=margin, tolerance=tolerance)
    fresh = new_checkpoint(structs.replace(AGENT, decisions=decisions), given.environment.start(1), "nodes")
    whole, agent = _run(given, fresh)
    points = list(whole.play(episodes=2, every=100))
    agent.save(tmp_path / "whole", run=whole.record)
    part, agent = _run(given, fresh)
    played = list(part.play(episodes=2, every=100, is_stopping=lambda: part.record.decisions == stops_at))
    assert played[-1].decisions == stops_at
    agent.save(tmp_path / "part", run=part.record)
    saved = load_checkpoint(tmp_path / "part")
    assert saved.run is not None
    rest, agent = _run(read_given("bursty", SETTINGS, 1), saved)
    assert rest.go_on(saved.run)
    played = list(rest.play(episodes=2 - saved.run.episodes, every=100))
    assert played[-1].decisions == points[-1].decisions == 300
    agent.save(tmp_path / "rest", run=rest.record)
    assert (tmp_path / "rest").read_bytes() == (tmp_path / "whole").read_bytes()


@pytest.mark.parametrize(("tasks", "objects"), [(150, 99), (20, 256)])
def test_episode_of_another_input_starts_over(given: Given[Any], tasks: int, objects: int) -> None:
    pytest.importorskip("torch")
    fresh = new_checkpoint(AGENT, given.environment.start(1), "nodes")
    part, _ = _run(given, fresh)
    list(part.play(episodes=1, every=100, is_stopping=lambda: part.record.decisions == 40))
    elsewhere = structs.replace(SETTINGS.bursty, tasks=tasks, objects=objects)
    rest, _ = _run(read_given("bursty", LearningSettings(agent=AGENT, bursty=elsewhere), 1), fresh)
    assert not rest.go_on(part.record)
    assert rest.record.actions == b""
    points = list(rest.play(episodes=1, every=1000))
    assert points[-1].decisions == 40 + elsewhere.tasks


def test_a_trained_network_decides_when_it_is_tried(given: Given[Any], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _trained(given, tmp_path / "a")
    agent = greedy(given, load_checkpoint(tmp_path / "a"), given.rules(1)["data-local"])
    outcome = evaluate(given, agent, 1)
    assert dict(agent.decider.counts) == {"network": 150}
    assert outcome.decisions == 150
    assert outcome == evaluate(given, agent, 1)


def test_an_untrained_agent_is_its_fallback(given: Given[Any]) -> None:
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    fresh = new_checkpoint(flat, given.environment.start(1), "nodes")
    agent = greedy(given, fresh, given.rules(1)["round-robin"])
    assert evaluate(given, agent, 1) == evaluate(given, given.rules(1)["round-robin"], 1)
    assert agent.decider.counts["untrained"] == 150


def test_checkpoint_of_other_nodes_is_refused(given: Given[Any]) -> None:
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    other = LearningSettings(bursty=BurstySettings(tasks=5, system=PoolSystem(nodes=5)))
    fresh = new_checkpoint(flat, read_given("bursty", other, 1).environment.start(1), "nodes")
    with pytest.raises(LearningError, match="4 actions"):
        greedy(given, fresh, given.rules(1)["random"])


def test_fallback_is_the_best_rule_that_does_not_predict(given: Given[Any]) -> None:
    figures = {name: evaluate(given, rule, 1).mean_response_ns for name, rule in given.rules(1).items()}
    best = best_rule(given, 1)
    assert best not in {"random", "earliest-finish"}
    assert all(figures[best] <= figures[name] for name in figures.keys() - {"random", "earliest-finish"})
    assert best_rule(given, 1, "random") == "random"
    with pytest.raises(LearningError, match="no rule 'best'; known: random, round-robin"):
        best_rule(given, 1, "best")


def test_utilisation_is_held_time_of_slots_over_all() -> None:
    step = Step(None, 2.0, 0, wait_ns=10, latency_ns=20, response_ns=60, submitted_ns=0)
    tally = Tally()
    tally.add(step)
    tally.add(replace(step, task=1, submitted_ns=40, wait_ns=0, response_ns=60, reward=4.0))
    # 2 slots are held for 50 and 60 ns of the 100 ns from the first submission to the last end.
    alone = Graphs.of(Workload.of([Task(0), Task(40)], [1]))
    assert tally.of_pool(2, alone) == Figures(2, 5.0, 60.0, 110 / 200, 20.0, 3.0, 5.0, 60.0)


def test_a_graph_responds_from_its_submission_to_its_last_end() -> None:
    # Tasks 0 and 2 are a graph submitted at 5; task 1 is independent.
    graphs = Graphs.of(Workload.of([Task(5), Task(6), Task(6, after=(0,))], [1]))
    assert graphs.of_task.tolist() == [0, 1, 0]
    tally = Tally()
    tally.add(Step(None, 0.0, 0, wait_ns=2, latency_ns=2, response_ns=10, submitted_ns=5))
    tally.add(Step(None, 0.0, 1, wait_ns=4, latency_ns=4, response_ns=6, submitted_ns=6))
    tally.add(Step(None, 0.0, 2, wait_ns=0, latency_ns=0, response_ns=30, submitted_ns=15))
    outcome = tally.of_pool(2, graphs)
    # The graph: from 5 to 45, started at 7. Tasks: 10, 6 and 30 after each is ready.
    assert (outcome.mean_wait_ns, outcome.mean_response_ns) == (3.0, 23.0)
    assert outcome.mean_task_wait_ns == 2.0
    assert outcome.mean_task_response_ns == pytest.approx(46 / 3)


def test_batch_logs_are_judged_by_real_starts(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG)
    given = read_given(f"swf:{tmp_path}/log.swf", LearningSettings(), 0)
    outcome = evaluate(given, given.rules(0)["easy"], 0)
    environment = given.environment
    assert outcome.mean_wait_ns == environment.view.outcome().mean_wait_ns
    assert outcome.mean_response_ns == environment.view.outcome().mean_response_ns
    assert outcome.decisions == 39


@pytest.mark.parametrize("text", ["blocks", "bursty:file", "what:file", ""])
def test_inputs_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(LearningError, match="its kind must be one of blocks:FILE"):
        read_given(text, LearningSettings(), 0)


def test_malformed_trace_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG + "1 2 what\n")
    with pytest.raises(WorkloadError, match=r"log\.swf.*40"):
        read_given(f"swf:{tmp_path}/log.swf", LearningSettings(), 0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("agent:\n  network: {hidden: 63}", r":2: agent\.network\.hidden: 63 is not a multiple of 4 heads"),
        ("agent:\n  training:\n    batch: 0", r":3: agent\.training\.batch: 0 is not between"),
        ("agent: {seed: 1}\nbursty: {tasks: 0}", r":2: bursty\.tasks: tasks is 0, less than 1"),
        ("pool:\n  page_bytes: 0", r":2: pool\.page_bytes: page_bytes is 0"),
    ],
)
def test_wrong_settings_name_file_line_and_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "learning.yaml"
    path.write_text(text)
    with pytest.raises(LearningError, match=rf"learning\.yaml{why}"):
        load_settings(path)


def test_preset_observes_six_features_and_has_their_reward(tmp_path: Path) -> None:
    path = tmp_path / "learning.yaml"
    path.write_text("agent: {network: {hidden: 16}}\nbursty: {tasks: 20, objects: 64, system: {nodes: 4}}\n")
    settings = load_settings(path, "specification")
    assert settings == load_settings(path).with_preset("specification")
    assert (settings.agent.network.output, settings.agent.network.hidden) == ("distribution", 16)
    seen = read_given("bursty", settings, 1).environment.start(1)
    assert (seen.figures, seen.has_network, seen.has_load) == (2, False, False)
    assert (settings.pool.gain, settings.ordering.gain) == ("specification", "slowdown")
    (tmp_path / "log.swf").write_text(LOG)
    assert read_given(f"swf:{tmp_path}/log.swf", settings, 1).environment.start(1).figures == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pool: {load_features: true}", r":2: pool\.load_features: the preset specification has no load_features"),
        ("pool: {network_features: true}", r":2: pool\.network_features: the preset specification has no network_f"),
        ("ordering: {gain: response}", r":2: ordering\.gain: the preset specification has no gain"),
        ("ordering:\n  waits_and_sizes: true", r":3: ordering\.waits_and_sizes: the preset specification has no wai"),
    ],
)
def test_departures_from_the_preset_name_file_line_and_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "learning.yaml"
    path.write_text(f"agent: {{preset: specification}}\n{text}\n")
    with pytest.raises(LearningError, match=rf"learning\.yaml{why}"):
        load_settings(path)


def test_progress_counts_decisions(given: Given[Any]) -> None:
    seen: list[int] = []
    figures = evaluate(given, given.rules(1)["random"], 1, seen.append)
    assert seen == list(range(1, figures.decisions + 1))


def test_decisions_are_timed_by_the_clock_that_is_given(given: Given[Any]) -> None:
    ticks = iter(range(0, 10**6, 5))
    timed = Timed(given.rules(1)["round-robin"], lambda: next(ticks))
    evaluate(given, timed, 1)
    assert timed.took_ns == [5] * 150
    assert timed.percentile_ns(99) == 5


def test_rows_of_mean_attention_sum_to_one(given: Given[Any]) -> None:
    fresh = new_checkpoint(AGENT, given.environment.start(1), "nodes")
    attention = attention_of(given, fresh, given.rules(1)["round-robin"], 1, 10)
    assert attention.shape == (1, 2, 4, 4)
    assert attention.sum(axis=-1) == pytest.approx(1)
    flat = AgentSettings(network=NetworkSettings(hidden=8, heads=2, layers=1, feed_forward=8))
    with pytest.raises(LearningError, match="only `tokens` has"):
        attention_of(given, new_checkpoint(flat, given.environment.start(1), "nodes"), given.rules(1)["random"], 1, 10)


def test_attention_uses_the_most_frequent_number_of_places(tmp_path: Path) -> None:
    (tmp_path / "log.swf").write_text(LOG)
    # Ten jobs wait at first, one at last: 4 places, then 3, 2 and 1.
    ordering = OrderingSettings(window=4, empty_places=False, episode=10, at_once=True)
    given = read_given(f"swf:{tmp_path}/log.swf", LearningSettings(ordering=ordering), 0)
    fresh = new_checkpoint(AGENT, given.environment.start(0), given.kind)
    attention = attention_of(given, fresh, given.rules(0)["easy"], 0, 39)
    assert attention.shape == (1, 2, 4, 4)
    assert attention.sum(axis=-1) == pytest.approx(1)


def test_figure_against_a_named_preset_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "learning.yaml"
    path.write_text("agent:\n  training: {loss: huber}\n")
    with pytest.raises(LearningError, match=r"learning\.yaml:2: agent\.training\.loss: the preset specification has c"):
        load_settings(path, "specification")
