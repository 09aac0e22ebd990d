"""A live scheduler that learns where to dispatch tasks, and its state after its training is killed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import signal
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from controller.learning.agent.records import load_checkpoint
from controller.learning.agent.training.process import ProcessTraining
from controller.scheduling.framework.lessons import Outcome
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.profiles import MEASURED, TaskProfileSettings
from controller.scheduling.tasks.settings import TaskSettings
from tests.controller.learning.policy.test_live import LEARN, network_of, seen
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, play
from tests.controller.scheduling.serving.test_learning import AGENT
from tests.waiting import until, wait_until

__all__ = ["play"]
pytestmark = pytest.mark.slow


def _settings(**learned: Any) -> TaskSettings:
    score = PolicySettings(policy="learned", weight=1000, settings={"deadline_ns": 10**9, **learned})
    return TaskSettings(profiles=(TaskProfileSettings(name="measured", scores=(*MEASURED.scores, score)),))


def test_learns_in_shadow_and_decides_live_by_what_it_saved(play: Play, tmp_path: Path) -> None:
    checkpoint = tmp_path / "tasks.ckpt"
    learn = {"agent": AGENT, "load_features": True, "gain": "log-response", "save_every": "100ms"}

    async def act(site: Site) -> None:
        async with site.running(site.centre("slow"), site.centre("fast", 2.0)):
            names: list[str] = []
            async with site.scheduling(_settings(checkpoint=str(checkpoint), learn=learn)):

                async def has_learned() -> bool:
                    more = [f"t{number}" for number in range(len(names), len(names) + 12)]
                    for name in more:
                        await site.submit(name, task_type="products")
                    await site.ended(*more)
                    names.extend(more)
                    return checkpoint.exists() and bool(load_checkpoint(checkpoint).version)

                await until(has_learned, "no policy was published", limit_s=120, poll_s=0.5)
            saved = load_checkpoint(checkpoint)
            assert (saved.made_for.kind, saved.made_for.load) == ("tasks", True)
            async with site.scheduling(_settings(checkpoint=str(checkpoint), shadow=False)):
                await site.submit("live", task_type="products")
                await site.ended("live")
            why = (await site.decisions_about("live"))[-1].spec
            reasons = {score.node: score.reasons[-1] for score in why.scores}
            assert reasons[why.scores[0].node].startswith(f"learned: version {saved.version} gives it ")
            assert ", rank 1 of 2" in reasons[why.scores[0].node]

    play(act)


def test_experiences_are_whole_once_both_sides_are_known(tmp_path: Path) -> None:
    now = iter(range(0, 10**12, 10**9))
    file = tmp_path / "pods.ckpt"
    network = network_of(file, clock_ns=lambda: next(now), learn=LEARN)
    network.open()
    try:
        for key, choice in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
            network.decided(key, network.answer(seen(0.25, 0.75), key), choice)
        network.came("b", Outcome(10**9, 0.5))
        network.came("a", Outcome(None, 0.5))
        network.came("c", None)
        network.came("d", Outcome(10**9, 0.5))
        network.came("nobody", Outcome(1, 1.0))
        standing = network.standing
        assert standing.experiences == {"started": 2, "never started": 1, "abandoned": 1}
        assert standing.waiting == 0
        network.save(60.0)
    finally:
        network.close()
    saved = load_checkpoint(file)
    assert saved.learner is not None
    # The experience of "d" waits for the next decision.
    assert saved.learner.decisions == len(saved.learner.held) == 2


def test_decisions_continue_while_training_is_restarted(tmp_path: Path) -> None:
    network = network_of(tmp_path / "pods.ckpt", learn=LEARN)
    network.open()
    try:
        training = network.training
        assert isinstance(training, ProcessTraining)
        first = training.process_id
        os.kill(first, signal.SIGKILL)
        numbers = itertools.count()

        def is_restarted() -> bool:
            number = next(numbers)
            network.decided(f"p{number}", network.answer(seen(0.25, 0.75), f"p{number}"), number % 2)
            network.came(f"p{number}", Outcome(10**9, 0.5))
            return bool(network.standing.training["restarts"] >= 1)

        wait_until(is_restarted, "training is not restarted", limit_s=60, poll_s=0.01)
        assert network.standing.problem == "training process: killed by SIGKILL"
        assert training.process_id != first
        network.decided("last", network.answer(seen(0.25, 0.75), "last"), 0)
        network.came("last", Outcome(10**9, 0.5))
        network.decided("after", network.answer(seen(0.25, 0.75), "after"), 0)
        network.save(60.0)
        assert network.standing.problem == "training process: killed by SIGKILL"
    finally:
        network.close()
    learner = load_checkpoint(tmp_path / "pods.ckpt").learner
    assert learner is not None
    assert learner.decisions >= 1
