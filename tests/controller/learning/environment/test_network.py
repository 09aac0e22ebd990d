"""Delay and bandwidth between nodes from the cost map, from several, and under demands."""

from __future__ import annotations

import pytest

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap, Load
from controller.learning.environment.network import LEAST_BPS, of_costs, under_demands
from controller.learning.environment.pool import Pool
from controller.learning.environment.values import Network, System
from controller.learning.errors import LearningError
from dataplane.topology.demands import DemandMatrix
from dataplane.topology.families import from_text
from tests.controller.learning.environment.pools import PLAIN, cpu, node, reads

GBPS = 1_000_000_000
FABRIC = from_text("leaf-spine:spines=2,leaves=2,hosts=2")
COSTS = CostMap.of(FABRIC, Snapshot(0, {}, {}, {}))
HOSTS = COSTS.hosts[:4]


def test_delay_and_bandwidth_are_the_cost_maps() -> None:
    network = of_costs(HOSTS[:3], {0: COSTS})
    cost = COSTS.cost(HOSTS[0], HOSTS[2])
    assert network.delay_ns[0, 0, 2] == cost.delay_ns > network.delay_ns[0, 0, 1]
    assert network.rate_bps[0, 0, 2] == cost.available_bps


def test_a_series_of_snapshots_holds_from_its_times_on() -> None:
    rate_bps = COSTS.cost(HOSTS[0], HOSTS[2]).available_bps
    loaded = COSTS.with_load(HOSTS[0], HOSTS[2], rate_bps)
    network = of_costs(HOSTS, {0: COSTS, 5_000_000: loaded})
    assert network.times_ns.tolist() == [0, 5_000_000]
    assert network.delay_ns[1, 0, 2] > network.delay_ns[0, 0, 2]
    assert network.rate_bps[:, 0, 2].tolist() == [rate_bps, LEAST_BPS]
    with pytest.raises(LearningError, match="times of a network do not rise from 0"):
        _pool(of_costs(HOSTS, {7: COSTS}))


def test_transfer_gets_its_fair_share_with_demands() -> None:
    src, near, far, other = HOSTS
    access_bps = COSTS.cost(src, near).available_bps
    rates = [[0] * 4 for _ in range(4)]
    # One demands all of the link to `far`, and one a tenth of the link from `src`.
    rates[3][2], rates[0][1] = access_bps, access_bps // 10
    matrix = DemandMatrix((src, near, far, other), tuple(map(tuple, rates)))
    network = under_demands(HOSTS, COSTS, {0: DemandMatrix(HOSTS, ((0,) * 4,) * 4), 1000: matrix})
    assert network.rate_bps[0, 0, 2] == access_bps
    # Half of the link to `far`: less than the rest of its own link.
    assert network.rate_bps[1, 0, 2] == pytest.approx(access_bps / 2, rel=1e-6)
    assert network.rate_bps[1, 0, 3] == pytest.approx(access_bps * 9 / 10, rel=1e-6)
    assert network.delay_ns[1, 0, 2] > network.delay_ns[0, 0, 2]
    expected = COSTS.with_loads([Load(other, far, access_bps), Load(src, near, access_bps // 10)])
    assert network.delay_ns[1, 0, 2] == expected.cost(src, far).delay_ns


def test_a_node_that_the_fabric_does_not_have_is_named() -> None:
    with pytest.raises(LearningError, match="has no host 'nobody'"):
        of_costs(["nobody"], {0: COSTS})
    with pytest.raises(LearningError, match="has no host 'x'"):
        under_demands(HOSTS, COSTS, {0: DemandMatrix(("x", HOSTS[0]), ((0, 1), (0, 0)))})


def test_remote_access_takes_the_fabrics_time() -> None:
    network = of_costs(HOSTS, {0: COSTS})
    pool = _pool(network)
    pool.start(0)
    cost = COSTS.cost(HOSTS[3], HOSTS[0])
    sending_ns = 8000 * GBPS // min(cost.available_bps, 4 * GBPS)
    assert pool.step(0).latency_ns == 100 + cost.delay_ns + sending_ns + 10 + 1000


def _pool(network: Network) -> Pool:
    """Return three nodes with a CPU, and one that holds data."""
    nodes = [*(node(name, cpu()) for name in HOSTS[:3]), node(HOSTS[3], slow_bytes=10_000)]
    return Pool(System(tuple(nodes), network), reads(0), PLAIN)
