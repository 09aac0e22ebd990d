"""Checkpoints resume exactly, are strict, and run no code; experience round-trips as bytes."""

from __future__ import annotations

import hashlib
import importlib.util
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from controller.learning.agent.agents import Agent, agent_of, new_checkpoint
from controller.learning.agent.purpose import Kind, MadeFor
from controller.learning.agent.records import (
    Checkpoint,
    check_for,
    checkpoint_from_bytes,
    checkpoint_to_bytes,
    experience_from_bytes,
    experience_to_bytes,
    generator_from_bytes,
    generator_to_bytes,
    load_checkpoint,
    save_checkpoint,
)
from controller.learning.agent.settings import AgentSettings, Form, NetworkSettings, TrainingSettings
from controller.learning.errors import LearningError
from controller.learning.values import Experience, Observation

Observe = Callable[..., Observation]
Live = Callable[..., Experience]
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
SETTINGS = AgentSettings(
    network=NetworkSettings(hidden=16, feed_forward=16, deviation=0.1),
    training=TrainingSettings(buffer=32, batch=8, batches=4, publish_every=32),
)


class First:
    """A fallback that takes the first action."""

    def choose(self, observation: Observation, view: None) -> int:
        return 0


def _settings(form: Form, **training: object) -> AgentSettings:
    return msgspec.structs.replace(
        SETTINGS,
        network=msgspec.structs.replace(SETTINGS.network, form=form),
        training=msgspec.structs.replace(SETTINGS.training, **training),
    )


def _same(observation: Observation, other: Observation) -> bool:
    return np.array_equal(observation.row, other.row) and np.array_equal(observation.candidates, other.candidates)


def test_experience_comes_back_from_bytes(live: Live) -> None:
    lived = live(np.random.default_rng(1))
    restored = experience_from_bytes(experience_to_bytes(lived))
    assert _same(restored.observation, lived.observation)
    assert restored.following is not None
    assert lived.following is not None
    assert _same(restored.following, lived.following)
    assert (restored.action, restored.reward, restored.elapsed_ns) == (lived.action, lived.reward, lived.elapsed_ns)


def test_experience_of_any_number_of_figures_comes_back(live: Live) -> None:
    lived = live(np.random.default_rng(1))
    for vectors in (2, 3, 8, 11):
        seen = Observation(np.linspace(0, 1, 4 + 4 * vectors, dtype=np.float32), np.ones(4, np.bool_))
        restored = experience_from_bytes(experience_to_bytes(replace(lived, observation=seen)))
        assert _same(restored.observation, seen)
        short = Observation(seen.row[:-1], seen.candidates)
        with pytest.raises(LearningError, match="4 candidates are not an observation"):
            experience_from_bytes(experience_to_bytes(replace(lived, observation=short)))


def test_experience_that_is_cut_is_refused(live: Live) -> None:
    data = experience_to_bytes(live(np.random.default_rng(1)))
    for length in range(len(data)):
        with pytest.raises(LearningError, match="cannot be read"):
            experience_from_bytes(data[:length])


def test_random_generator_resumes() -> None:
    generator = np.random.default_rng(3)
    generator.integers(3, dtype=np.uint32)
    again = generator_from_bytes(generator_to_bytes(generator))
    assert generator.integers(1 << 30, size=9).tolist() == again.integers(1 << 30, size=9).tolist()


@needs_torch
@pytest.mark.parametrize(
    ("form", "training"),
    [
        ("flat", {}),
        ("tokens", {"optimiser": "adam"}),
        ("dense", {"momentum": 0.9, "remove_sampled": False, "train_every": 16, "prioritised": 0.5}),
    ],
)
def test_resumed_agent_continues_exactly(
    observe: Observe, live: Live, tmp_path: Path, form: Form, training: dict[str, object]
) -> None:
    """With experience in the buffer, optimiser state and a used random generator."""

    def go_on(agent: Agent[None], generator: np.random.Generator, count: int) -> list[int]:
        actions = []
        for _ in range(count):
            actions.append(agent.decide(observe(generator), None).action)
            agent.learn(live(generator))
        return actions

    generator = np.random.default_rng(4)
    agent = agent_of(new_checkpoint(_settings(form, **training), observe(generator), "nodes"), First())
    go_on(agent, generator, 75)
    agent.save(tmp_path / "agent")
    state = generator.bit_generator.state
    expected = go_on(agent, generator, 75)
    generator.bit_generator.state = state
    resumed = agent_of(load_checkpoint(tmp_path / "agent"), First())
    assert go_on(resumed, generator, 75) == expected
    assert resumed.published.weights.to_bytes() == agent.published.weights.to_bytes()
    assert resumed.published.weights.version == 4
    assert resumed.status == agent.status
    resumed.save(tmp_path / "resumed")
    agent.save(tmp_path / "agent")
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "agent").read_bytes()


@pytest.fixture
def checkpoint(observe: Observe) -> Checkpoint:
    return new_checkpoint(SETTINGS, observe(np.random.default_rng(5)), "nodes")


def test_checkpoint_decides_without_training(observe: Observe, checkpoint: Checkpoint) -> None:
    agent = agent_of(msgspec.structs.replace(checkpoint, version=7), First(), "none")
    assert agent.decide(observe(np.random.default_rng(5)), None).version == 7


def test_a_damaged_checkpoint_names_its_file(checkpoint: Checkpoint, tmp_path: Path) -> None:
    data = checkpoint_to_bytes(checkpoint)
    path = tmp_path / "agent"
    for damaged in (data[:-1], data[:100], data[:80] + bytes([data[80] ^ 1]) + data[81:]):
        path.write_bytes(damaged)
        with pytest.raises(LearningError, match=f"^{path}: damaged"):
            load_checkpoint(path)


def test_checkpoint_with_units_in_its_keys_is_read(checkpoint: Checkpoint) -> None:
    head = len(checkpoint_to_bytes(checkpoint)) - len(msgspec.msgpack.encode(checkpoint))
    plain = msgspec.to_builtins(checkpoint)
    training, decisions = plain["settings"]["training"], plain["settings"]["decisions"]
    training["discount_time_ns"] = training.pop("discount_time") + 5
    decisions["deadline_ns"] = decisions.pop("deadline")
    plain["published"] = checkpoint.published
    content = msgspec.msgpack.encode(plain)
    first_line = checkpoint_to_bytes(checkpoint)[: head - hashlib.sha256().digest_size]
    read = checkpoint_from_bytes(first_line + hashlib.sha256(content).digest() + content, "file")
    assert read.settings.training.discount_time_ns == checkpoint.settings.training.discount_time_ns + 5
    assert read.settings.decisions == checkpoint.settings.decisions


def test_foreign_checkpoint_is_refused_and_no_pickle_runs(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
            return exec, (f"open({str(tmp_path / 'ran')!r}, 'w')",)

    (tmp_path / "agent").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(LearningError, match="not a checkpoint of an agent"):
        load_checkpoint(tmp_path / "agent")
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_that_is_not_there_names_its_file(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(LearningError, match=r"nothing: cannot be read: No such file"):
        load_checkpoint(tmp_path / "nothing")
    with pytest.raises(LearningError, match=r"agent: cannot be written: No such file"):
        save_checkpoint(tmp_path / "none" / "agent", checkpoint)


def test_a_checkpoint_made_for_something_else_is_refused(observe: Observe, tmp_path: Path) -> None:
    path, generator = tmp_path / "agent", np.random.default_rng(6)
    save_checkpoint(path, new_checkpoint(_settings("tokens"), observe(generator), "nodes"))
    assert check_for(load_checkpoint(path), path, "nodes", observe(generator, 7)).made_for == MadeFor(
        "nodes", network=True, load=False
    )
    plain = observe(generator, network=False)
    wrong: list[tuple[Kind, Observation, str]] = [
        ("jobs", observe(generator), "nodes of a pool, not for jobs of a queue"),
        ("nodes", plain, "nodes of a pool with network features, not for nodes of a pool with the six features"),
    ]
    for kind, seen, why in wrong:
        with pytest.raises(LearningError, match=f"^{path}: it was made for {why}"):
            check_for(load_checkpoint(path), path, kind, seen)
    save_checkpoint(path, new_checkpoint(_settings("flat"), observe(generator), "jobs"))
    with pytest.raises(LearningError, match=f"^{path}: an observation of 5 actions .* made for 4 actions"):
        check_for(load_checkpoint(path), path, "jobs", observe(generator, 5))
    with pytest.raises(LearningError, match="jobs of a queue with waits and sizes, not for jobs of a queue with"):
        check_for(load_checkpoint(path), path, "jobs", plain)


def test_weights_of_another_shape_or_not_finite_are_refused(checkpoint: Checkpoint) -> None:
    wider = msgspec.structs.replace(checkpoint, published=checkpoint.published + bytes(4))
    with pytest.raises(LearningError, match=r"^file: weights of \d+ bytes, where a network flat has \d+"):
        checkpoint_from_bytes(checkpoint_to_bytes(wider), "file")
    nan = np.float32(np.nan).tobytes() + checkpoint.published[4:]
    with pytest.raises(LearningError, match=r"^file: version 0 has weights that are not finite$"):
        checkpoint_from_bytes(checkpoint_to_bytes(msgspec.structs.replace(checkpoint, published=nan)), "file")


def test_a_setting_that_cannot_be_is_named(observe: Observe) -> None:
    for key, figure, settings in (
        ("network.hidden", "30", {"network": NetworkSettings(hidden=30)}),
        ("training.discount", "1.5", {"training": TrainingSettings(discount=1.5)}),
        ("loss", "'hubert'", {"training": TrainingSettings(loss="hubert")}),  # type: ignore[arg-type]
        ("form", "'token'", {"network": NetworkSettings(form="token")}),  # type: ignore[arg-type]
        ("training.learning_rate", "nan", {"training": TrainingSettings(learning_rate=float("nan"))}),
    ):
        with pytest.raises(LearningError, match=f"^{key}(: {figure} is | is {figure}, not )") as caught:
            new_checkpoint(AgentSettings(**settings), observe(np.random.default_rng(1)), "nodes")
        assert caught.value.at == key
