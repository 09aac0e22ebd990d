"""The linear program against known network flow results, and shares that realise its solution."""

from __future__ import annotations

import random
from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from controller.common.errors import PathError
from controller.network.paths.engineering.splits import by_flows, ecmp, shortest
from controller.network.paths.engineering.trees import cheapest_trees
from controller.network.paths.engineering.values import FloatArray, Splits, SwitchGraph
from controller.network.paths.engineering.weights import rounded
from dataplane.topology.demands import gravity
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology
from tests.reference.utilisations import figures
from tests.reference.whole_program import solve


def graph_of(*links: tuple[str, str, float, float]) -> SwitchGraph:
    """Return a graph of directed links: tail, head, bit/s, ns."""
    switches = tuple(sorted({name for tail, head, _, _ in links for name in (tail, head)}))
    return SwitchGraph(
        switches,
        tuple(LinkKey(tail, head) for tail, head, _, _ in links),
        np.array([switches.index(tail) for tail, _, _, _ in links]),
        np.array([switches.index(head) for _, head, _, _ in links]),
        np.array([float(rate) for _, _, rate, _ in links]),
        np.array([float(delay) for _, _, _, delay in links]),
    )


DIAMOND = graph_of(("a", "b", 10, 1), ("b", "d", 10, 1), ("a", "c", 30, 5), ("c", "d", 30, 5), ("b", "c", 10, 1))


@st.composite
def loaded_networks(draw: st.DrawFn) -> tuple[SwitchGraph, FloatArray]:
    """Return a strongly connected network of a few switches with random rates and delays, and random demands."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    names = "abcdef"[: draw(st.integers(3, 6))]
    cables = {(names[rng.randrange(index)], name) for index, name in enumerate(names) if index}
    cables |= {tuple(sorted(rng.sample(names, 2))) for _ in range(draw(st.integers(0, 6)))}  # type: ignore[misc]
    links = [
        (tail, head, rate, delay)
        for a, b in sorted(cables)
        for rate, delay in [(rng.choice((1e6, 1e9, 1e10)), rng.randrange(4))]
        for tail, head in ((a, b), (b, a))
    ]
    graph = graph_of(*links)
    pairs = [(src, dst) for src in names for dst in names if src != dst]
    chosen = rng.sample(pairs, draw(st.integers(1, len(pairs))))
    return graph, graph.demand_matrix({pair: rng.uniform(1, 1e9) for pair in chosen})


def engineered(graph: SwitchGraph, demand: FloatArray, enough: float = 0.0) -> Splits:
    """Return the program's splits, with shortest paths for switches without traffic."""
    solved = solve(graph, demand, range(len(graph.switches)), enough=enough)
    return by_flows(graph, solved.flows_bps, solved.destinations, shortest(graph, graph.delay_ns))


def shares_at(splits: Splits, destination: str, switch: str) -> dict[str, float]:
    """Return a switch's shares for a destination by next switch."""
    graph, row = splits.graph, splits.shares[splits.graph.number[destination]]
    return {key.dst: round(float(row[index]), 6) for index, key in enumerate(graph.links) if key.src == switch}


def test_traffic_is_split_to_minimise_the_maximum_utilisation() -> None:
    demand = DIAMOND.demand_matrix({("a", "d"): 20})
    splits = engineered(DIAMOND, demand)
    assert shares_at(splits, "d", "a") == {"b": 0.25, "c": 0.75}
    assert figures(splits, demand).max_utilisation == pytest.approx(0.5, rel=1e-4)


def test_traffic_takes_no_detour_below_the_enough_utilisation() -> None:
    demand = DIAMOND.demand_matrix({("a", "d"): 4})
    assert shares_at(engineered(DIAMOND, demand, enough=0.5), "d", "a") == {"b": 1.0, "c": 0.0}


def test_load_that_stays_is_worked_around() -> None:
    demand = DIAMOND.demand_matrix({("a", "d"): 12})
    fixed = np.array([9.0, 0, 0, 0, 0])
    solved = solve(DIAMOND, demand, [DIAMOND.number["d"]], fixed_bps=fixed)
    assert solved.max_utilisation == pytest.approx(0.9, rel=1e-4)
    assert (fixed + solved.flows_bps[0])[:4] == pytest.approx([9, 0, 12, 12], abs=1e-3)


def test_switches_without_traffic_keep_their_paths() -> None:
    splits = engineered(DIAMOND, DIAMOND.demand_matrix({("a", "d"): 20}))
    assert shares_at(splits, "d", "b") == {"c": 0.0, "d": 1.0}
    assert shares_at(splits, "c", "a") == {"b": 1.0, "c": 0.0}


def test_a_demand_without_a_path_is_an_error() -> None:
    with pytest.raises(PathError, match="no path"):
        solve(DIAMOND, DIAMOND.demand_matrix({("d", "a"): 1}), [0])
    with pytest.raises(PathError, match="from d to a"):
        figures(shortest(DIAMOND, DIAMOND.delay_ns), DIAMOND.demand_matrix({("d", "a"): 1}))
    with pytest.raises(PathError, match="d->x"):
        DIAMOND.demand_matrix({("d", "x"): 1})


def test_no_demand_needs_no_program() -> None:
    solved = solve(DIAMOND, np.zeros((4, 4)), range(4), fixed_bps=np.array([5.0, 0, 0, 0, 0]))
    assert (solved.max_utilisation, solved.flows_bps.sum()) == (0.5, 0.0)


def test_circles_of_flow_carry_nothing_and_are_taken_out() -> None:
    graph = graph_of(("a", "b", 10, 0), ("b", "c", 10, 0), ("c", "a", 10, 0), ("c", "d", 10, 0), ("b", "a", 10, 0))
    flows = np.array([[5.0, 4, 2, 2, 1]])
    splits = by_flows(graph, flows, (3,), shortest(graph, graph.delay_ns))
    assert shares_at(splits, "d", "a") == {"b": 1.0}
    assert shares_at(splits, "d", "c") == {"a": 0.0, "d": 1.0}
    assert shares_at(splits, "d", "b") == {"a": 0.0, "c": 1.0}


def test_trickle_below_the_threshold_makes_no_cycle() -> None:
    """w's parts of the trickle are all noise, so w keeps its shortest path: back over v."""
    graph = graph_of(
        ("v", "d", 10, 1), ("v", "w", 10, 1), ("w", "v", 10, 1), ("w", "x", 10, 9), ("w", "y", 10, 9),
        ("x", "d", 10, 9), ("y", "d", 10, 9), ("d", "x", 10, 9),
    )  # fmt: skip
    half = 0.75e-6
    flows = np.array([[1.0, 2 * half, 0.0, half, half, half, half, 0.0]])
    splits = by_flows(graph, flows, (graph.number["d"],), shortest(graph, graph.delay_ns))
    assert shares_at(splits, "d", "v") == {"d": 1.0, "w": 0.0}
    assert splits.order(graph.number["d"])


@settings(max_examples=30, deadline=None)
@given(loaded_networks())
def test_loads_of_all_destinations_are_those_of_each(network: tuple[SwitchGraph, FloatArray]) -> None:
    graph, demand = network
    for splits in (shortest(graph, graph.delay_ns), ecmp(graph, graph.delay_ns), rounded(engineered(graph, demand))):
        wanted = np.flatnonzero(demand.sum(axis=0))
        together = splits.loads_by_destination(wanted, demand[:, wanted].T)
        each = np.array([splits.loads_towards(int(column), demand[:, column]) for column in wanted])
        assert together == pytest.approx(each)


@settings(max_examples=30, deadline=None)
@given(loaded_networks())
def test_trees_have_the_loads_of_shortest_paths(network: tuple[SwitchGraph, FloatArray]) -> None:
    graph, demand = network
    rng = np.random.default_rng(1)
    costs = rng.uniform(1, 2, len(graph.links))  # all paths have different costs
    wanted = np.flatnonzero(demand.sum(axis=0))
    trees = cheapest_trees(graph, costs, wanted)
    paths = ecmp(graph, np.round(costs * 1e9))
    assert trees.loads(graph, demand[:, wanted].T) == pytest.approx(
        np.array([paths.loads_towards(int(column), demand[:, column]) for column in wanted])
    )


@settings(max_examples=20, deadline=None)
@given(loaded_networks(), st.integers(0, 2**32), st.integers(-9, -5))
def test_no_noise_of_a_solver_makes_a_cycle(network: tuple[SwitchGraph, FloatArray], seed: int, magnitude: int) -> None:
    graph, demand = network
    solved = solve(graph, demand, range(len(graph.switches)))
    rng = np.random.default_rng(seed)
    noise = rng.random(solved.flows_bps.shape) * (rng.random(solved.flows_bps.shape) < 0.3)
    flows = solved.flows_bps + noise * solved.flows_bps.max() * 10.0**magnitude
    by_flows(graph, flows, solved.destinations, shortest(graph, graph.delay_ns)).loads_bps(demand)


def test_a_cycle_in_splits_is_an_error() -> None:
    graph = graph_of(("a", "b", 10, 0), ("b", "a", 10, 0), ("b", "d", 10, 0))
    shares = np.zeros((3, 3))
    shares[2] = [1.0, 0.5, 0.5]
    with pytest.raises(PathError, match="towards d form a cycle"):
        Splits(graph, shares).loads_bps(graph.demand_matrix({("a", "d"): 1}))


def test_the_delay_is_propagation_and_an_mm1_queue_on_each_link() -> None:
    graph = graph_of(("a", "b", 1e9, 1000), ("b", "c", 1e9, 3000))
    demand = graph.demand_matrix({("a", "c"): 0.6e9, ("a", "b"): 0.2e9})
    delays = figures(shortest(graph, graph.delay_ns), demand)
    first_ns, second_ns = 1000 + 8000 / 0.2, 3000 + 8000 / 0.4
    assert delays.mean_delay_ns == pytest.approx(first_ns + 0.75 * second_ns)
    assert figures(shortest(graph, graph.delay_ns), 2 * demand).mean_delay_ns == float("inf")


@settings(max_examples=40, deadline=None)
@given(loaded_networks())
def test_the_splits_reach_the_optimum_of_a_program_over_paths(network: tuple[SwitchGraph, FloatArray]) -> None:
    """The reference has a variable for every simple path of every pair: an alternative too large for real use."""
    graph, demand = network
    splits = engineered(graph, demand)
    utilisation = figures(splits, demand).max_utilisation
    assert utilisation == pytest.approx(optimum_over_paths(graph, demand), rel=1e-3)
    assert utilisation <= figures(ecmp(graph, graph.delay_ns), demand).max_utilisation * (1 + 1e-4)
    assert (rounded(splits).loads_bps(demand) >= 0).all()  # raises if rounding lost a path or made a cycle


def optimum_over_paths(graph: SwitchGraph, demand: FloatArray) -> float:
    """Return the minimum of the maximum utilisation by enumerating paths."""
    digraph = nx.DiGraph((key.src, key.dst) for key in graph.links)
    columns, owners = [], []
    pairs = [(int(src), int(dst)) for src, dst in np.argwhere(demand > 0)]
    for number, (src, dst) in enumerate(pairs):
        for path in nx.all_simple_paths(digraph, graph.switches[src], graph.switches[dst]):
            columns.append([graph.links.index(LinkKey(*pair)) for pair in pairwise(path)])
            owners.append(number)
    at_most = np.zeros((len(graph.links), len(columns) + 1))
    equal = np.zeros((len(pairs), len(columns) + 1))
    for column, (links, owner) in enumerate(zip(columns, owners, strict=True)):
        at_most[links, column] = demand[pairs[owner]] / graph.rate_bps[links]
        equal[owner, column] = 1.0
    at_most[:, -1] = -1.0
    objective = np.zeros(len(columns) + 1)
    objective[-1] = 1.0
    optimum = optimize.linprog(
        objective, A_ub=at_most, b_ub=np.zeros(len(graph.links)), A_eq=equal, b_eq=np.ones(len(pairs)), method="highs"
    )
    assert optimum.fun is not None
    return float(optimum.fun)


def test_ecmp_splits_evenly_and_shortest_takes_the_first() -> None:
    graph = graph_of(("a", "b", 10, 2), ("a", "c", 10, 2), ("b", "d", 10, 2), ("c", "d", 10, 2), ("a", "d", 10, 5))
    assert shares_at(ecmp(graph, graph.delay_ns), "d", "a") == {"b": 0.5, "c": 0.5, "d": 0.0}
    assert shares_at(shortest(graph, graph.delay_ns), "d", "a") == {"b": 1.0, "c": 0.0, "d": 0.0}
    assert shares_at(ecmp(graph, np.ones(5)), "d", "a") == {"b": 0.0, "c": 0.0, "d": 1.0}


@pytest.fixture(scope="module")
def abilene() -> Topology:
    """Return Abilene."""
    return load_topology("abilene")


def test_gravity_demands_add_up_and_follow_the_links_rates(abilene: Topology) -> None:
    demands = gravity(abilene, 1e9)
    assert sum(demands.values()) == pytest.approx(1e9)
    assert len(demands) == 12 * 11
    assert demands["atlam5", "wash"] < demands["atla", "wash"]
    assert demands["atla", "wash"] == pytest.approx(demands["wash", "atla"])


def test_abilene_is_less_loaded_than_by_shortest_paths(abilene: Topology) -> None:
    graph = SwitchGraph.of(abilene)
    demand = graph.demand_matrix(gravity(abilene, 20e9))
    paths = figures(shortest(graph, graph.delay_ns), demand)
    weights = figures(rounded(engineered(graph, demand)), demand)
    assert weights.max_utilisation < 0.8 * paths.max_utilisation
    assert weights.mean_delay_ns < 1.1 * paths.mean_delay_ns


def test_a_graph_can_leave_links_out(abilene: Topology) -> None:
    cut = SwitchGraph.of(abilene, frozenset({LinkKey("atla", "wash")}))
    assert LinkKey("atla", "wash") not in cut.links
    assert LinkKey("wash", "atla") in cut.links
