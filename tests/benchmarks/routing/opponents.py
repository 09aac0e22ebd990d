"""The same questions asked of other libraries, on the same links with the same costs."""

from __future__ import annotations

import networkx as nx
import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from controller.network.algorithms.costs import FORBIDDEN, Costs
from controller.network.algorithms.link_table import LinkTable


def networkx_graph(table: LinkTable, costs: Costs) -> nx.DiGraph:
    """Return the usable links, turned round, so that a search from a destination finds the ways to it."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(table.switches)))
    for row, cost in enumerate(costs.tolist()):
        if cost != FORBIDDEN:
            graph.add_edge(int(table.head[row]), int(table.tail[row]), weight=cost)
    return graph


def networkx_tree(graph: nx.DiGraph, dst: int) -> dict[int, int]:
    """Return the least cost from every switch to a destination."""
    distances: dict[int, int] = nx.single_source_dijkstra_path_length(graph, dst)
    return distances


def scipy_trees(table: LinkTable, costs: Costs) -> np.ndarray:
    """Return the least cost from every switch to every destination, by [destination, switch]."""
    usable = costs != FORBIDDEN
    ends = (table.head[usable], table.tail[usable])
    size = len(table.switches)
    graph = sparse.csr_array((costs[usable].astype(np.float64), ends), shape=(size, size))
    distances: np.ndarray = csgraph.dijkstra(graph)
    return distances
