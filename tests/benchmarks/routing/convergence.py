"""Rounds of traffic engineering with default settings until nothing improves: how good, how many, how long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from controller.network.paths.engineering.engineer import TrafficEngineer
from controller.network.paths.engineering.search import Problem, Search
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.engineering.splits import by_flows, ecmp, shortest
from controller.network.paths.engineering.values import FloatArray, SwitchGraph
from controller.network.paths.engineering.weights import rounded
from dataplane.topology.values import Topology
from tests.reference.whole_program import solve

STEP_NS = 100_000_000
"""The path server decides this often."""
_QUIET_ROUNDS = 2
"""Rounds in a row without a change after which nothing improves."""
_MOST_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class CpuClock:
    """This process's CPU time: the clock of an otherwise idle machine."""

    def now_ns(self) -> int:
        """Return nanoseconds of CPU time."""
        return time.process_time_ns()


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least maximum utilisation (`bound` where it is known to within a hundredth only), and in rounded weights."""

    bound: float
    rounded: float | None


@dataclass(frozen=True, slots=True)
class Convergence:
    """Totals over rounds: maximum utilisation, rounds that changed weights, CPU, and destinations changed."""

    max_utilisation: float
    rounds: int
    cpu_s: float
    longest_step_cpu_s: float
    quiet_round_cpu_s: float
    destinations: int


def whole_optimum(graph: SwitchGraph, demand: FloatArray) -> Optimum:
    """Return the linear program's optimum, and the value left after rounding to weights that sum to 32."""
    optimum = solve(graph, demand, range(len(graph.switches)))
    splits = by_flows(graph, optimum.flows_bps, optimum.destinations, shortest(graph, graph.delay_ns))
    worst = float((rounded(splits).loads_bps(demand) / graph.rate_bps).max())
    return Optimum(optimum.max_utilisation, worst)


def bounded_optimum(graph: SwitchGraph, demand: FloatArray) -> Optimum:
    """Return the search's own bound of the optimum: for networks where the whole program takes too long."""
    problem = Problem.of(graph, demand, np.zeros(len(graph.links)))
    search = Search(problem, ecmp(graph, graph.delay_ns))
    for _ in search:
        pass
    return Optimum(search.bound, None)


def converge(topology: Topology, demand: FloatArray, settings: EngineeringSettings) -> Convergence:
    """Step until nothing improves; time between rounds passes at once, and within a step as CPU time."""
    engineer = TrafficEngineer(topology, settings, clock=CpuClock())
    names = [node.name for node in topology.switches]
    demands = {(names[src], names[dst]): float(demand[src, dst]) for src, dst in np.argwhere(demand > 0)}
    now_ns, quiet, cpu_s, longest_s, changed = 0, 0, 0.0, 0.0, set[str]()
    quiet_s = 0.0
    for _ in range(_MOST_STEPS):
        started_s = time.process_time()
        done = engineer.step(demands, frozenset(), now_ns)
        step_s = time.process_time() - started_s
        longest_s, quiet_s = max(longest_s, step_s), quiet_s + step_s
        cpu_s += step_s
        if engineer.is_searching:
            now_ns += STEP_NS
            continue
        if done is None:
            quiet += 1
            if quiet == _QUIET_ROUNDS:
                break
        else:
            quiet = 0
            changed |= set(done.destinations)
        quiet_s = 0.0
        now_ns += settings.interval_ns
    graph = SwitchGraph.of(topology)
    base = float((ecmp(graph, graph.delay_ns).loads_bps(demand) / graph.rate_bps).max())
    after = engineer.rounds[-1].max_utilisation_after if engineer.rounds else base
    return Convergence(after, len(engineer.rounds), cpu_s, longest_s, quiet_s, len(changed))


def gap(value: float, optimum: float) -> float:
    """Return by what share a utilisation is above the optimum."""
    return max(0.0, value / optimum - 1)


def both(
    topology: Topology, demand: FloatArray, optimum_of: Callable[[SwitchGraph, FloatArray], Optimum]
) -> tuple[Optimum, Convergence, Convergence]:
    """Return the optimum, the rounds with default settings, and those that press utilisation as far as they can."""
    settings = EngineeringSettings()
    optimum = optimum_of(SwitchGraph.of(topology), demand)
    return optimum, converge(topology, demand, settings), converge(topology, demand, replace(settings, enough=0.0))
