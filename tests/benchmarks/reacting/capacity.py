"""Check whether a fabric has room for a surge: the lowest utilisation that any splitting of all demands reaches."""

from __future__ import annotations

import numpy as np

from controller.apps.demo.scenario import Scenario
from controller.network.paths.engineering.values import SwitchGraph
from tests.reference.whole_program import solve

ENOUGH = 0.9
"""There is spare capacity where the busiest link between switches can be kept below this."""


def least_utilisation(scenario: Scenario) -> float:
    """Return the busiest link's utilisation under the surge with optimally split demands."""
    topology = scenario.topology
    graph = SwitchGraph.of(topology)
    demands = np.zeros((len(graph.switches), len(graph.switches)))
    for planned in scenario.flows:
        ends = (topology.attachment[host].node for host in (planned.flow.src_host, planned.flow.dst_host))
        src, dst = (graph.number[switch] for switch in ends)
        demands[src, dst] += 0.0 if src == dst else planned.rate_bps
    wanted = [int(index) for index in np.flatnonzero(demands.any(axis=0))]
    return solve(graph, demands, wanted, enough=1.0).max_utilisation
