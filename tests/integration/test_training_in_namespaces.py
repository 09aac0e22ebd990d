"""Four workers in namespaces train by a switch that adds up: with losses, a worker killed, the switch killed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from controller.aggregation.jobs import RunningJob
from tests.integration.allreduce_namespaces import Agent, AggregationFabric

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

WORKERS, STEPS, RATE_BPS, WINDOW = 4, 40, 200_000_000, 32
WITHIN = 1e-5
"""Of a loss: what floats that are rounded once more, and added in another order, make of it in so many steps."""
Answers = dict[int, dict[str, Any]]


class Training:
    """The workers' process and what they found."""

    def __init__(self, fabric: AggregationFabric) -> None:
        self.fabric = fabric
        namespaces = [fabric.fabric.namespace(host) for host in fabric.hosts]
        address = f"tcp://{fabric.topology.host['h1'].ipv4}:29500"
        self._agent: Agent = fabric.start_agent("h1", "tests.integration.training_workers", address, *namespaces)
        for _ in fabric.hosts:
            assert self.hear()["joined"]

    def begin(self, name: str, *, loss: float = 0.0, patience_s: float = 30.0, **more: Any) -> RunningJob:
        """Have all train by the switch; return the job."""
        job = self.fabric.start_job(window=WINDOW)
        settings = [
            replace(self.fabric.engine_settings(job, host), patience_s=patience_s) for host in self.fabric.hosts
        ]
        self._agent.tell(train=name, steps=STEPS, loss=loss, engines=[asdict(one) for one in settings], **more)
        return job

    def begin_by_gloo(self) -> None:
        """Have all train by gloo."""
        self._agent.tell(train="gloo", steps=STEPS, loss=0, gloo=True)

    def hear(self) -> dict[str, Any]:
        return self._agent.answer()

    def results(self, workers: int = WORKERS) -> Answers:
        """Return what each worker says at the end."""
        found = [self.hear() for _ in range(workers)]
        return {answer["rank"]: answer for answer in found}


@pytest.fixture(scope="module")
def training() -> Iterator[Training]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with AggregationFabric(WORKERS, RATE_BPS) as fabric:
        yield Training(fabric)


@pytest.fixture(scope="module")
def by_gloo(training: Training) -> Answers:
    training.begin_by_gloo()
    return training.results()


def assert_the_same_curve(found: Answers, by_gloo: Answers) -> None:
    for rank, answer in found.items():
        off = np.abs(np.array(answer["losses"]) - by_gloo[rank]["losses"]).max()
        print(rank, off, answer.get("repeated"), answer["losses"][0], answer["losses"][-1])
        assert off < WITHIN
    assert len({answer["parameters"] for answer in found.values()}) == 1


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
def test_training_by_the_switch_is_that_by_gloo_whatever_is_lost(
    training: Training, by_gloo: Answers, loss: float
) -> None:
    job = training.begin(f"{loss:%} are lost", loss=loss)
    found = training.results()
    training.fabric.end_job(job)
    assert_the_same_curve(found, by_gloo)
    for answer in found.values():
        assert not answer["by_ring"]
        assert not loss or answer["repeated"]
        assert answer["losses"][-1] < answer["losses"][0] / 3


def test_when_the_switch_is_killed_and_comes_back_without_the_job_training_goes_on_by_the_ring(
    training: Training, by_gloo: Answers
) -> None:
    job = training.begin("switch killed", patience_s=2.0, tells=True)
    assert training.hear() == {"rank": 0, "middle": "switch killed"}
    training.fabric.restart_switch(without=job)
    found = training.results()
    assert_the_same_curve(found, by_gloo)
    for answer in found.values():
        assert answer["by_ring"]
        (said,) = answer["said"]
        assert "go by gloo's ring of workers 0, 1, 2, 3, without the switch: worker" in said
        assert "got no result from" in said


def test_when_a_worker_is_killed_the_others_go_on_by_the_switch(training: Training, by_gloo: Answers) -> None:
    job = training.begin("worker killed", dies=3)
    assert training.hear() == {"rank": 3, "ended": -9}
    training.fabric.leave(job, "h4")
    found = training.results(WORKERS - 1)
    assert len({answer["parameters"] for answer in found.values()}) == 1
    for rank, answer in found.items():
        assert not answer["by_ring"]
        assert not answer["said"]
        assert answer["losses"][: STEPS // 2 + 1] == pytest.approx(
            by_gloo[rank]["losses"][: STEPS // 2 + 1], abs=WITHIN
        )
        assert answer["losses"][-1] < answer["losses"][0] / 3
