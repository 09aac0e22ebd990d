"""The search for weights against the optimum of the whole linear program, and unchanged weights."""

from __future__ import annotations

import numpy as np
import pytest

from controller.network.paths.engineering.search import Problem, Search
from controller.network.paths.engineering.splits import ecmp, shortest
from controller.network.paths.engineering.values import FloatArray, SwitchGraph
from controller.network.paths.engineering.weights import quantise
from dataplane.topology.demands import gravity
from dataplane.topology.families import fat_tree
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology
from tests.reference.whole_program import solve
from tests.reference.wide_area import wide_area_network

WITHIN = 1.05
"""The goal: at most 5 % above the optimum, in weights that fit the tables."""


def network(name: str) -> Topology:
    """Return a bundled topology, or a seeded wide area network of 20 switches."""
    return load_topology(name) if name.isalpha() else wide_area_network(20, int(name), (10, 40, 100))


def problem_of(topology: Topology, enough: float = 0.0) -> tuple[Problem, FloatArray]:
    """Return gravity demands that fill the busiest link of shortest paths to 90 %."""
    graph = SwitchGraph.of(topology)
    demand = graph.demand_matrix(gravity(topology))
    busiest = (shortest(graph, graph.delay_ns).loads_bps(demand) / graph.rate_bps).max()
    demand *= 0.9 / busiest
    return Problem.of(graph, demand, np.zeros(len(graph.links)), enough), demand


def exhausted(search: Search) -> Search:
    """Return a finished search."""
    for _ in search:
        pass
    assert search.is_finished
    return search


@pytest.mark.parametrize("name", ["abilene", "geant", "1", "2", "3"])
def test_search_reaches_the_optimum_in_whole_weights(name: str) -> None:
    problem, demand = problem_of(network(name))
    graph = problem.graph
    search = exhausted(Search(problem, ecmp(graph, graph.delay_ns)))
    optimum = solve(graph, demand, problem.destinations.tolist()).max_utilisation
    result = search.result()
    assert optimum * 0.999 <= problem.max_utilisation(result) <= optimum * WITHIN
    assert search.bound <= optimum * 1.001
    for leaving in graph.leaving:
        for shares in result.shares[:, leaving]:
            if shares.any():
                weights = quantise(shares.tolist())
                assert np.array(weights) / sum(weights) == pytest.approx(shares)


def test_search_can_end_at_any_step() -> None:
    """Any intermediate result routes everything and is no worse than the weights in force."""
    problem, _ = problem_of(network("1"))
    present = ecmp(problem.graph, problem.graph.delay_ns)
    before, search = problem.max_utilisation(present), Search(problem, present)
    for _ in search:
        assert problem.max_utilisation(search.result()) <= before * 1.001


def test_search_resumes_from_a_draft() -> None:
    problem, _ = problem_of(network("2"))
    present = ecmp(problem.graph, problem.graph.delay_ns)
    rounds, search = 0, Search(problem, present)
    while not search.is_finished:
        search = Search(problem, present, draft=search.draft())
        next(iter(search), None)
        rounds += 1
    whole = exhausted(Search(problem, present))
    assert rounds > 10
    assert problem.max_utilisation(search.result()) <= whole.max_utilisation * WITHIN


def test_search_stops_at_enough() -> None:
    problem, _ = problem_of(network("abilene"), enough=0.8)
    graph = problem.graph
    search = exhausted(Search(problem, ecmp(graph, graph.delay_ns)))
    changed = np.abs(search.result().shares - ecmp(graph, graph.delay_ns).shares).max(axis=1) > 0
    assert search.max_utilisation <= 0.8
    assert 1 <= changed.sum() <= 3


@pytest.mark.parametrize("topology", [fat_tree(4), fat_tree(8)], ids=["k=4", "k=8"])
def test_search_knows_at_once_that_ecmp_is_best(topology: Topology) -> None:
    edges = [node.name for node in topology.switches if node.name.startswith("edge")]
    graph = SwitchGraph.of(topology)
    demand = graph.demand_matrix({(src, dst): 1e8 for src in edges for dst in edges if src != dst})
    problem = Problem.of(graph, demand, np.zeros(len(graph.links)))
    assert not Search(problem, ecmp(graph, graph.delay_ns)).could_gain(0.05)


def test_search_works_around_load_that_stays() -> None:
    problem, demand = problem_of(network("3"))
    graph = problem.graph
    fixed = np.where(np.arange(len(graph.links)) % 5 == 0, 0.4 * graph.rate_bps, 0.0)
    loaded = Problem.of(graph, demand, fixed)
    search = exhausted(Search(loaded, ecmp(graph, graph.delay_ns)))
    optimum = solve(graph, demand, problem.destinations.tolist(), fixed_bps=fixed).max_utilisation
    assert loaded.max_utilisation(search.result()) <= optimum * WITHIN
    assert search.bound <= optimum * 1.001
