"""Traffic engineering on large networks: CPU time of a round, its distance from the optimum, and POP beside it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from controller.network.paths.engineering.engineer import TrafficEngineer
from controller.network.paths.engineering.search import Problem, Search
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.engineering.splits import ecmp
from controller.network.paths.engineering.values import Demands, FloatArray, SwitchGraph
from dataplane.clock import NS_PER_S
from dataplane.topology.values import Topology
from tests.reference.whole_program import solve

MOST_PAIRS = 100_000
CHANGES = (0.01, 0.05, 0.2)
"""By how much each demand differs from those before, up or down, in the rounds after the first."""
_SETTINGS = replace(EngineeringSettings(), enough=0.0, min_gain=0.0, smoothing=0.0)


@dataclass(frozen=True, slots=True)
class Round:
    """CPU time of a round, the maximum utilisation of its weights, and a bound that no split is below."""

    cpu_s: float
    max_utilisation: float
    bound: float

    @property
    def gap(self) -> float:
        """By what share the utilisation may at most be above the optimum."""
        return self.max_utilisation / self.bound - 1


def some_pairs(demand: FloatArray, seed: int = 0) -> FloatArray:
    """Return a demand matrix with at most 100,000 pairs of its own, drawn by a seed."""
    pairs = np.flatnonzero(demand)
    if len(pairs) <= MOST_PAIRS:
        return demand
    kept = np.random.default_rng(seed).choice(pairs, MOST_PAIRS, replace=False)
    some = np.zeros(demand.size)
    some[kept] = demand.reshape(-1)[kept]
    return some.reshape(demand.shape)


def rounds(topology: Topology, demand: FloatArray) -> list[Round]:
    """Return the first round of an engineer that begins at base routes, and one after each change of the demands."""
    engineer = TrafficEngineer(topology, _SETTINGS)
    graph, rng = SwitchGraph.of(topology), np.random.default_rng(0)
    done = []
    for number, change in enumerate((0.0, *CHANGES)):
        demand = demand * rng.uniform(1 - change, 1 + change, demand.shape)
        demands = _by_name(graph, demand)
        begun_s = time.process_time()
        engineer.step(demands, frozenset(), number * 10 * NS_PER_S)
        cpu_s = time.process_time() - begun_s
        done.append(_judged(graph, engineer, demand, cpu_s))
    return done


def _by_name(graph: SwitchGraph, demand: FloatArray) -> Demands:
    names = graph.switches
    return {(names[src], names[dst]): float(demand[src, dst]) for src, dst in np.argwhere(demand > 0)}


def _judged(graph: SwitchGraph, engineer: TrafficEngineer, demand: FloatArray, cpu_s: float) -> Round:
    """Return a round's quality by the weights in force and by the bound of a search that begins at them."""
    problem = Problem.of(graph, demand, np.zeros(len(graph.links)))
    splits = engineer.splits()
    search = Search(problem, splits)
    search.could_gain(0.0, engineer.prices)
    for _ in search:
        pass
    return Round(cpu_s, problem.max_utilisation(splits), search.bound)


def pop(graph: SwitchGraph, demand: FloatArray, parts: int) -> tuple[float, float]:
    """Return POP's maximum utilisation and CPU seconds (Narayanan et al., SOSP 2021).

    The destinations are dealt out at random to `parts` linear programs, each with that share of every link's rate. The
    parts are solved one after the other, as on one core; their flows are not rounded to weights.
    """
    order = np.random.default_rng(0).permutation(np.flatnonzero(demand.sum(axis=0)))
    loads, begun_s = np.zeros(len(graph.links)), time.process_time()
    for part in range(parts):
        loads += solve(graph, demand, order[part::parts].tolist()).flows_bps.sum(axis=0)
    return float((loads / graph.rate_bps).max()), time.process_time() - begun_s


def even_start(graph: SwitchGraph, demand: FloatArray) -> float:
    """Return the maximum utilisation of ECMP over paths of least delay."""
    return Problem.of(graph, demand, np.zeros(len(graph.links))).max_utilisation(ecmp(graph, graph.delay_ns))
