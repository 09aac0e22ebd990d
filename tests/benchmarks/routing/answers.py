"""Questions about two switches, answered by our algorithms and by networkx, on the same links."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

import networkx as nx

from controller.network.algorithms.costs import HOP_BITS, Costs
from controller.network.algorithms.disjoint import disjoint_backup
from controller.network.algorithms.k_shortest import k_shortest
from controller.network.algorithms.link_table import LinkTable, Longs
from controller.network.algorithms.search import PathSearch

K: Final = 8
SLOWER: Final = 2
"""A bound of delay is this many times the least delay."""


class Ours:
    """Answers by controller/network/algorithms; each returns the cost of the path found."""

    def __init__(self, table: LinkTable, costs: Costs, width_bps: Longs) -> None:
        self._search, self._costs, self._width_bps = PathSearch(table), costs, width_bps

    def least(self, src: int, dst: int) -> int:
        """Return the least cost."""
        path = self._search.path(self._costs, src, dst)
        return 0 if path is None else path.cost

    def kth(self, src: int, dst: int) -> int:
        """Return the cost of the k-th shortest path."""
        return k_shortest(self._search, self._costs, src, dst, K)[-1].cost

    def widest_within(self, src: int, dst: int) -> int:
        """Return the cost of the widest path within the bound of delay."""
        bound_ns = self.least(src, dst) * SLOWER >> HOP_BITS
        path = self._search.widest_within(self._costs, self._width_bps, src, dst, bound_ns)
        return 0 if path is None else path.cost

    def backup(self, src: int, dst: int) -> int:
        """Return the cost of the backup of the shortest path."""
        first = self._search.path(self._costs, src, dst)
        spare = None if first is None else disjoint_backup(self._search, self._costs, src, dst, first.rows)
        return 0 if spare is None else sum(int(self._costs[row]) for row in spare.rows)


class Networkx:
    """The same answers from networkx, where a disjoint backup exists."""

    def __init__(self, table: LinkTable, costs: Costs, width_bps: Longs) -> None:
        self._graph = nx.DiGraph()
        for row, cost in enumerate(costs.tolist()):
            ends = int(table.tail[row]), int(table.head[row])
            self._graph.add_edge(*ends, weight=cost, width=int(width_bps[row]))
        self._widths = sorted(set(width_bps.tolist()))

    def least(self, src: int, dst: int) -> int:
        """Return the least cost."""
        return int(nx.dijkstra_path_length(self._graph, src, dst))

    def kth(self, src: int, dst: int) -> int:
        """Return the cost of the k-th shortest path."""
        *_, last = islice(nx.shortest_simple_paths(self._graph, src, dst, "weight"), K)
        return int(nx.path_weight(self._graph, last, "weight"))

    def widest_within(self, src: int, dst: int) -> int:
        """Return the cost of the widest path within the bound of delay."""
        best = self.least(src, dst)
        bound_ns = best * SLOWER >> HOP_BITS
        low, high = 0, len(self._widths)
        while low < high:
            middle = (low + high) // 2
            try:
                cost = int(nx.dijkstra_path_length(self._graph, src, dst, self._at_least(self._widths[middle])))
            except nx.NetworkXNoPath:
                high = middle
                continue
            if cost >> HOP_BITS > bound_ns:
                high = middle
            else:
                best, low = cost, middle + 1
        return best

    def backup(self, src: int, dst: int) -> int:
        """Return the cost of the shortest path that shares no cable and no switch with the shortest of all."""
        first = nx.dijkstra_path(self._graph, src, dst)
        inner = set(first[1:-1])

        def weight(tail: int, head: int, link: dict[str, int]) -> int | None:
            return None if head in inner or {tail, head} == set(first) else link["weight"]

        return int(nx.dijkstra_path_length(self._graph, src, dst, weight))

    def _at_least(self, width: int) -> Callable[[int, int, dict[str, int]], int | None]:
        return lambda _tail, _head, link: link["weight"] if link["width"] >= width else None
