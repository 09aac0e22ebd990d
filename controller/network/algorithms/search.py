"""Single paths in a table's links under any costs or widths: least cost, widest, and either within a bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from controller.network.algorithms.compiled import compiled
from controller.network.algorithms.costs import FORBIDDEN, HOP_BITS, UNREACHABLE, Costs
from controller.network.algorithms.kernels.search import find_path
from controller.network.algorithms.kernels.trees import grow_tree
from controller.network.algorithms.kernels.width_trees import grow_widths
from controller.network.algorithms.link_table import Flags, LinkTable, Longs
from controller.network.algorithms.structures import LinkColumns, Workspace, graph_of
from dataplane.native import pointer_to


@dataclass(frozen=True, slots=True)
class FoundPath:
    """A path as the rows of its links, and its cost."""

    rows: tuple[int, ...]
    cost: int


class PathSearch:
    """Finds single paths; no two threads may use one at a time."""

    def __init__(self, table: LinkTable) -> None:
        self.table = table
        self._graph, self._workspace = graph_of(table), Workspace.of(table)
        self._way = np.zeros(len(table.switches), np.uint32)
        self._costs: Costs | None = None
        self._links = LinkColumns()

    def distances(self, costs: Costs, dst: int) -> Costs:
        """Return the least cost from every switch to a destination, UNREACHABLE where no path leads there."""
        result = np.empty(len(self.table.switches), np.uint64)
        compiled(grow_tree)(
            self._graph, pointer_to(costs[self.table.in_link]), self._workspace.scratch, dst, pointer_to(result)
        )
        return result

    def path(self, costs: Costs, src: int, dst: int, estimate: Costs | None = None) -> FoundPath | None:
        """Return the path of least cost, None where there is none.

        `estimate` is, for each switch, at most its cost to the destination, as `distances` under costs nowhere higher.
        """
        if costs is not self._costs:
            self._links, self._costs = LinkColumns(cost=pointer_to(costs)), costs
        guess = None if estimate is None else estimate.ctypes.data
        cost = compiled(find_path)(
            self._graph, self._links, self._workspace.scratch, src, dst, 0, guess, self._way.ctypes.data
        )
        return None if cost == UNREACHABLE else FoundPath(self._rows(src, dst), cost)

    def widths(self, width_bps: Longs, usable: Flags, src: int) -> Longs:
        """Return the width of the widest path from a switch to every switch, 0 where no path leads there.

        A path is as wide as its narrowest link; a switch's way to itself has no limit (2^63 - 1).
        """
        result = np.empty(len(self.table.switches), np.int64)
        width = np.where(usable, np.maximum(width_bps, 0), 0)
        compiled(grow_widths)(
            self._graph,
            pointer_to(width),
            self._workspace.scratch,
            src,
            src + 1,
            pointer_to(result),
            pointer_to(self._way),
        )
        return result

    def within_width(self, costs: Costs, width_bps: Longs, src: int, dst: int, floor_bps: int) -> FoundPath | None:
        """Return the path of least cost over links of at least a width, None where there is none."""
        return self.path(np.where(width_bps >= floor_bps, costs, np.uint64(FORBIDDEN)), src, dst)

    def widest(self, costs: Costs, width_bps: Longs, src: int, dst: int) -> FoundPath | None:
        """Return the path of least cost among the widest ones, None where no path leads there."""
        widest = int(self.widths(width_bps, costs != FORBIDDEN, src)[dst])
        return self.within_width(costs, width_bps, src, dst, widest)

    def widest_within(self, costs: Costs, width_bps: Longs, src: int, dst: int, bound_ns: int) -> FoundPath | None:
        """Return the widest path of at most a delay, of several the one of least cost; None where all take longer.

        Exact: bisection over the widths that links have, for the greatest at which the least delay keeps the bound.
        """
        best = self.within_width(costs, width_bps, src, dst, 0)
        if best is None or best.cost >> HOP_BITS > bound_ns:
            return None
        estimate = self.distances(costs, dst)
        widths = np.unique(width_bps[costs != FORBIDDEN])
        low, high = 0, len(widths)
        while low < high:
            middle = (low + high) // 2
            wide = np.where(width_bps >= widths[middle], costs, np.uint64(FORBIDDEN))
            path = self.path(wide, src, dst, estimate)
            if path is None or path.cost >> HOP_BITS > bound_ns:
                high = middle
            else:
                best, low = path, middle + 1
        return best

    def _rows(self, src: int, dst: int) -> tuple[int, ...]:
        rows: list[int] = []
        switch = dst
        while switch != src:
            rows.append(int(self._way[switch]))
            switch = int(self.table.tail[rows[-1]])
        return tuple(reversed(rows))
