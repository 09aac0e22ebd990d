"""Two workers in namespaces reduce over shaped cables: by the switch, which adds up, and by gloo."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from dataclasses import asdict

import pytest

from controller.apps.demo.training.fabric import SWITCH, Agent
from dataplane.fabric.kernel import HOST_DEVICE, switch_device
from tests.integration.allreduce_namespaces import AggregationFabric

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
    """Return the duration and each worker's error."""
    seeds = list(range(len(agents)))
    for seed, agent in enumerate(agents):
        agent.ask(values=VALUES, seed=seed)
        agent.ask(ready=True)
    at_ns = time.monotonic_ns() + 50_000_000
    for agent in agents:
        agent.tell(reduce=side, at_ns=at_ns)
    took_s = (max(agent.answer()["end_ns"] for agent in agents) - at_ns) / 1e9
    return took_s, [agent.ask(check=seeds)["error"] for agent in agents]


def assert_shaped(fabric: AggregationFabric, agents: list[Agent], side: str) -> None:
    before = {host: fabric.wire(host) for host in fabric.hosts}
    took_s, errors = reduce(agents, side)
    assert max(errors) < 1e-6
    for host in fabric.hosts:
        wire = fabric.wire(host) - before[host]
        for nbytes in (wire.sent_bytes, wire.received_bytes):
            # With two workers each sends and receives everything once, by the ring as well.
            assert 4 * VALUES < nbytes < 2 * 4 * VALUES
        # TBF passes a burst at once.
        assert took_s > 0.8 * 8 * wire.sent_bytes / RATE_BPS


def test_both_ends_of_every_cable_are_shaped_to_the_rate(fabric: AggregationFabric) -> None:
    ends = [(host, HOST_DEVICE) for host in fabric.hosts]
    ends += [(SWITCH, switch_device(fabric.topology.attachment[host].port)) for host in fabric.hosts]
    for node, device in ends:
        assert fabric.shaped_rate_bps(node, device) == RATE_BPS


def test_the_switch_adds_up_at_the_rate_of_the_cables(fabric: AggregationFabric, agents: list[Agent]) -> None:
    job = fabric.start_job()
    for host, agent in zip(fabric.hosts, agents, strict=True):
        agent.ask(engine=asdict(fabric.engine_settings(job, host)))
    assert_shaped(fabric, agents, "engine")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_gloo_reduces_over_the_same_cables(fabric: AggregationFabric, agents: list[Agent]) -> None:
    for rank, agent in enumerate(agents):
        store = str(fabric.fabric.run_dir / "gloo")
        agent.tell(gloo={"name": "gloo", "store": store, "rank": rank, "workers": len(agents)})
    assert [agent.answer() for agent in agents] == [{}] * len(agents)
    assert_shaped(fabric, agents, "gloo")
