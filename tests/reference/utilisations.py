"""Quality of a way of splitting traffic: utilisation of the busiest link, and packet delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.network.algorithms.queueing import PACKET_BITS
from controller.network.paths.engineering.values import FloatArray, Splits
from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class Figures:
    """Maximum utilisation over all links, and mean delay in the network over all packets.

    The delay is propagation plus, on each link, the time in an M/M/1 queue, transmission included: packet length over
    the rate that the link has left (Kleinrock's independence assumption). It is infinite where a link is full.
    """

    max_utilisation: float
    mean_delay_ns: float


def figures(splits: Splits, demand_bps: FloatArray) -> Figures:
    """Return what splits are worth for demands by (source, destination); raise PathError if one has no way."""
    graph = splits.graph
    loads = splits.loads_bps(demand_bps)
    total = float(demand_bps.sum() - np.trace(demand_bps))
    worst = float((loads / graph.rate_bps).max(initial=0.0))
    if total == 0:
        return Figures(worst, 0.0)
    if worst >= 1:
        return Figures(worst, float("inf"))
    each_ns = graph.delay_ns + PACKET_BITS / (graph.rate_bps - loads) * NS_PER_S
    return Figures(worst, float((loads * each_ns).sum() / total))
