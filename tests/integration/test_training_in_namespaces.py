"""Four workers in namespaces train by a switch that adds up: with losses, workers killed and coming back, no switch."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator

import numpy as np
import pytest

from controller.apps.demo.training.fabric import Answers, TrainingFabric

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

WORKERS, RATE_BPS, STEPS = 4, 200_000_000, 40
LOSING = "tests.integration.training_workers"
WITHIN = 1e-5
"""Tolerance of a loss: one more rounding of gradients, and another order of addition, over this number of steps."""


@pytest.fixture(scope="module")
def fabric() -> Iterator[TrainingFabric]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with TrainingFabric(WORKERS, RATE_BPS, module=LOSING, steps=STEPS) as running:
        yield running


@pytest.fixture(scope="module")
def by_gloo(fabric: TrainingFabric) -> Answers:
    fabric.begin("gloo", by_gloo=True)
    return fabric.results(WORKERS)


def assert_the_same_curve(answers: Answers, by_gloo: Answers, steps: int = STEPS) -> None:
    for rank, answer in answers.items():
        off = np.abs(np.array(answer["losses"][:steps]) - by_gloo[rank]["losses"][:steps]).max()
        assert off < WITHIN
        assert answer["losses"][-1] < answer["losses"][0] / 3
    assert len({answer["parameters"] for answer in answers.values()}) == 1


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_training_by_the_switch_is_that_by_gloo_whatever_is_lost(
    fabric: TrainingFabric, by_gloo: Answers, loss: float
) -> None:
    fabric.begin(f"losing-{loss}", loss=loss)
    results = fabric.results(WORKERS)
    assert_the_same_curve(results, by_gloo)
    for answer in results.values():
        assert not answer["by_ring"]
        assert not loss or answer["repeated"]


def test_backend_trains_over_the_switch_without_a_hook(fabric: TrainingFabric, by_gloo: Answers) -> None:
    fabric.begin("backend", backend=True)
    results = fabric.results(WORKERS)
    assert_the_same_curve(results, by_gloo)
    for answer in results.values():
        assert not answer["by_ring"], answer["said"]
        assert answer["calls"] == ["gloo:all_gather", "gloo:all_reduce", "gloo:broadcast"]


def test_training_goes_by_ring_while_the_switch_is_away(fabric: TrainingFabric, by_gloo: Answers) -> None:
    fabric.begin("switch-killed", tells=True, returns=STEPS // 4, return_s=0.5)
    assert fabric.hear() == {"rank": 0, "middle": "switch-killed"}
    fabric.restart_switch(after_s=2.0)
    results = fabric.results(WORKERS)
    assert_the_same_curve(results, by_gloo)
    for answer in results.values():
        assert not answer["by_ring"]
        assert answer["first_by_ring"] >= STEPS // 2 - 1, "some are a step behind the one that tells"
        assert len(answer["losses"]) > answer["first_by_ring"] + STEPS // 4
        left, *_, back = (text for text in answer["said"] if "is used" in text)
        assert "gloo's ring of workers 0, 1, 2, 3 is used, not the switch: worker" in left
        assert "s1" in left
        assert "the switch is used again, in job switch-killed" in back


def test_training_survives_a_killed_worker_that_may_return(fabric: TrainingFabric, by_gloo: Answers) -> None:
    fabric.begin("worker-killed", dies=3, joins=10)
    assert fabric.hear() == {"rank": 3, "ended": -9}
    fabric.fork(3)
    fabric.begin("worker-killed", joins=10, ranks=[3])
    results = fabric.results(WORKERS)
    newcomer = results.pop(3)
    for answer in (newcomer, *results.values()):
        assert not answer["by_ring"], answer["said"]
        assert answer["parameters"] == newcomer["parameters"]
    assert len(newcomer["losses"]) == 1 + 10
    assert_the_same_curve(results, by_gloo, STEPS // 2 + 1)
