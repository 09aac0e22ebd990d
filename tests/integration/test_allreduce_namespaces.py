"""Two workers in namespaces reduce over shaped cables: by the switch, which adds up, and by gloo."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from tests.integration.allreduce_namespaces import Agent, AggregationFabric

pytestmark = pytest.mark.root

RATE_BPS = 50_000_000
VALUES = 64 << 10


@pytest.fixture(scope="module")
def fabric() -> Iterator[AggregationFabric]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with AggregationFabric(2, RATE_BPS) as running:
        yield running


@pytest.fixture(scope="module")
def agents(fabric: AggregationFabric) -> list[Agent]:
    return [fabric.start_agent(host, "tests.integration.allreduce_agent") for host in fabric.hosts]


def reduce(agents: list[Agent], side: str) -> tuple[float, list[float]]:
    """Return how long it took and each worker's error."""
    at_ns = time.monotonic_ns() + 50_000_000
    seeds = list(range(len(agents)))
    for seed, agent in enumerate(agents):
        agent.tell(reduce=side, values=VALUES, seed=seed, at_ns=at_ns, expect=seeds)
    answers = [agent.answer() for agent in agents]
    took_s = (max(answer["end_ns"] for answer in answers) - at_ns) / 1e9
    return took_s, [answer["max_relative_error"] for answer in answers]


def assert_shaped(fabric: AggregationFabric, agents: list[Agent], side: str) -> None:
    before = {host: fabric.wire(host) for host in fabric.hosts}
    took_s, errors = reduce(agents, side)
    assert max(errors) < 1e-6
    for host in fabric.hosts:
        wire = fabric.wire(host) - before[host]
        for nbytes in (wire.sent_bytes, wire.received_bytes):
            # Of two workers each sends all of it once and gets it once, by the ring as well.
            assert 4 * VALUES < nbytes < 2 * 4 * VALUES
        assert took_s > 0.9 * 8 * wire.sent_bytes / RATE_BPS


def test_the_switch_adds_up_at_the_rate_of_the_cables(fabric: AggregationFabric, agents: list[Agent]) -> None:
    job = fabric.start_job()
    for host, agent in zip(fabric.hosts, agents, strict=True):
        assert agent.ask(engine=asdict(fabric.engine_settings(job, host))) == {"joined": "engine"}
    assert_shaped(fabric, agents, "engine")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_gloo_reduces_over_the_same_cables(fabric: AggregationFabric, agents: list[Agent]) -> None:
    for rank, agent in enumerate(agents):
        agent.tell(gloo={"store": str(fabric.fabric.run_dir / "gloo"), "rank": rank, "workers": len(agents)})
    assert [agent.answer() for agent in agents] == [{"joined": "gloo"}] * len(agents)
    assert_shaped(fabric, agents, "gloo")
