"""Cheapest trees towards many destinations at once, by costs that are real numbers, and the loads they make."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.network.paths.engineering.values import FloatArray, IntArray, SwitchGraph


@dataclass(frozen=True, slots=True)
class Trees:
    """A tree for each destination: the link by which each switch leaves, -1 for none, and its distance.

    Arrays are by (row of the destination, switch); a switch that cannot reach it is infinitely far.
    """

    next_link: IntArray
    distance: FloatArray

    def loads(self, graph: SwitchGraph, entering: FloatArray) -> FloatArray:
        """Return the loads by (row, link) of the traffic that enters at each switch, by (row, switch)."""
        rows, size = np.arange(len(entering)), len(graph.switches)
        heads = np.append(graph.heads, size)  # -1 picks the last: a sink for unroutable traffic
        passing = np.concatenate([entering, np.zeros((len(entering), 1))], axis=1)
        following = heads[self.next_link]
        # From the farthest switch inwards: all that passes a switch has arrived before it goes on.
        for switches in np.argsort(-self.distance, axis=1, kind="stable").T:
            passing[rows, following[rows, switches]] += passing[rows, switches]
        loads = np.zeros((len(entering), len(graph.links) + 1))
        loads[rows[:, None], self.next_link] = passing[:, :-1]
        return loads[:, :-1]


def cheapest_trees(graph: SwitchGraph, costs: FloatArray, destinations: IntArray) -> Trees:
    """Return the tree of least cost towards each destination; costs are positive."""
    from scipy.sparse import csgraph, csr_array  # noqa: PLC0415 - scipy takes long to import

    size = len(graph.switches)
    backwards = csr_array((costs, (graph.heads, graph.tails)), shape=(size, size))
    distance, following = csgraph.dijkstra(backwards, indices=destinations, return_predecessors=True)
    is_reached = following >= 0
    next_link = np.where(is_reached, graph.link_between[np.arange(size), np.where(is_reached, following, 0)], -1)
    return Trees(next_link, distance)
