"""The kernels that move traffic: equal to their plain twin, without loops, and never worse than where they began."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.common.errors import PathError
from controller.network.paths.engineering.kernel_calls import Traffic
from controller.network.paths.engineering.search import SHARPNESS, Problem, Search
from controller.network.paths.engineering.splits import ecmp
from controller.network.paths.engineering.values import Splits, SwitchGraph
from dataplane.topology.demands import gravity
from tests.reference.shifting import PlainTraffic, weights_of
from tests.reference.whole_program import solve
from tests.reference.wide_area import wide_area_network


def problem_of(seed: int, switches: int, load: float = 0.9) -> Problem:
    """Return a random network with demands between a random third of its pairs."""
    topology, rng = wide_area_network(switches, seed, (10, 40, 100)), np.random.default_rng(seed)
    graph = SwitchGraph.of(topology)
    demand = graph.demand_matrix(gravity(topology, 1e10))
    demand *= rng.random(demand.shape) < 1 / 3
    demand *= load / (ecmp(graph, graph.delay_ns).loads_bps(demand) / graph.rate_bps).max()
    return Problem.of(graph, demand, rng.random(len(graph.links)) * 1e8)


@settings(max_examples=5)
@given(seed=st.integers(0, 2**20), switches=st.integers(4, 10))
def test_kernels_match_the_plain_twin(seed: int, switches: int) -> None:
    problem = problem_of(seed, switches)
    traffic = problem.routed(ecmp(problem.graph, problem.graph.delay_ns))
    for sharpness in SHARPNESS[::2]:
        traffic.price(sharpness, float(traffic.utilisation().max()), np.full(len(traffic.load), 1e-14))
        plain = PlainTraffic.of(traffic)
        traffic.shift(0, traffic.rows)
        for row in range(traffic.rows):
            plain.shift(row)
        assert traffic.flows.tolist() == plain.flows
        traffic.round(0, traffic.rows)
        assert traffic.weights.tolist() == [plain.round(row) for row in range(traffic.rows)]
        assert (traffic.flows.tolist(), traffic.load.tolist()) == (plain.flows, plain.load)
        assert traffic.cost.tolist() == [plain.cost(link) for link in range(len(traffic.cost))]


@given(amounts=st.lists(st.integers(0, 1 << 40), min_size=1, max_size=9).filter(any))
def test_plain_weights_keep_exact_shares(amounts: list[int]) -> None:
    weights = weights_of(amounts)
    assert weights_of([weight << 30 for weight in weights]) == [weight // np.gcd.reduce(weights) for weight in weights]


@settings(max_examples=5)
@given(seed=st.integers(0, 2**20), switches=st.integers(4, 9))
def test_search_is_between_its_bound_and_its_start(seed: int, switches: int) -> None:
    """The optimum is above the bound and below the result, which no more than equals its start and has no loop."""
    problem = problem_of(seed, switches)
    start = ecmp(problem.graph, problem.graph.delay_ns)
    search = Search(problem, start)
    for _ in search:
        pass
    demand = np.zeros((switches, switches))
    demand[:, problem.destinations] = problem.entering_bps.T
    wanted = problem.destinations.tolist()
    optimum = solve(problem.graph, demand, wanted, fixed_bps=problem.fixed_bps).max_utilisation
    result = search.result()
    reached = problem.max_utilisation(result)
    assert search.bound <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= reached <= problem.max_utilisation(start) * 1.001
    for destination in range(switches):
        assert sorted(result.order(destination)) == list(range(switches))


def test_warm_start_takes_fewer_steps_and_is_as_good() -> None:
    problem = problem_of(3, 60)
    first = Search(problem, ecmp(problem.graph, problem.graph.delay_ns))
    steps = sum(1 for _ in first)
    rng = np.random.default_rng(1)
    changed = problem.entering_bps * rng.uniform(0.9, 1.1, problem.entering_bps.shape)
    problem = Problem(problem.graph, problem.destinations, changed, problem.fixed_bps)
    cold = Search(problem, ecmp(problem.graph, problem.graph.delay_ns))
    for _ in cold:
        pass
    warm = Search(problem, first.result())
    warm.could_gain(0.0, first.prices)
    assert sum(1 for _ in warm) < steps / 2
    assert problem.max_utilisation(warm.result()) <= problem.max_utilisation(cold.result()) * 1.02


def test_loads_of_weights_are_those_of_the_splits() -> None:
    problem = problem_of(5, 20)
    splits = ecmp(problem.graph, problem.graph.delay_ns)
    plain = splits.loads_by_destination(problem.destinations, problem.entering_bps)
    traffic = problem.routed(splits)
    assert traffic.flows * traffic.unit_bps == pytest.approx(plain[:, traffic.layout.link], rel=1e-5, abs=1.0)


def test_traffic_refuses_weights_with_a_cycle_or_a_dead_end() -> None:
    problem = problem_of(7, 8)
    splits = ecmp(problem.graph, problem.graph.delay_ns)
    destination = int(problem.destinations[0])
    for shares, error in ((1.0, "form a cycle"), (0.0, "there is no path")):
        bad = splits.shares.copy()
        bad[destination] = shares
        with pytest.raises(PathError, match=error):
            problem.routed(Splits(problem.graph, bad))


def test_bound_of_any_prices_is_below_the_optimum() -> None:
    problem = problem_of(11, 10)
    demand = np.zeros((10, 10))
    demand[:, problem.destinations] = problem.entering_bps.T
    optimum = solve(problem.graph, demand, problem.destinations.tolist(), fixed_bps=problem.fixed_bps).max_utilisation
    traffic = Traffic(problem.graph, problem.destinations, problem.entering_bps, problem.fixed_bps)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert 0 < traffic.bound(rng.random(len(problem.graph.links))) <= optimum * (1 + 1e-6)
