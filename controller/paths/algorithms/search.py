"""Single paths of least cost in a table's links, under any costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from controller.paths.algorithms.costs import UNREACHABLE, Costs
from controller.paths.algorithms.link_table import LinkTable
from controller.paths.algorithms.search_kernels import find_path
from controller.paths.algorithms.structures import Workspace, graph_of
from controller.paths.algorithms.tree_kernels import grow_tree
from dataplane.native import kernel_library, pointer_to


@dataclass(frozen=True, slots=True)
class FoundPath:
    """A path as the rows of its links, and what it costs."""

    rows: tuple[int, ...]
    cost: int


class PathSearch:
    """Finds single paths; it keeps no costs, and no two threads may use one at a time."""

    def __init__(self, table: LinkTable) -> None:
        self.table = table
        self._graph, self._workspace = graph_of(table), Workspace.of(table)
        self._way = np.zeros(len(table.switches), np.uint32)
        self._no_estimate = np.zeros(len(table.switches), np.uint64)

    def distances(self, costs: Costs, dst: int) -> Costs:
        """Return the least cost from every switch to a destination, UNREACHABLE where no path leads there."""
        found = np.empty(len(self.table.switches), np.uint64)
        _grow()(self._graph, pointer_to(costs), self._workspace.scratch, dst, pointer_to(found))
        return found

    def path(self, costs: Costs, src: int, dst: int, estimate: Costs | None = None) -> FoundPath | None:
        """Return the path of least cost, None where there is none.

        `estimate` is, for each switch, at most its cost to the destination, as `distances` under costs nowhere higher.
        """
        guess = self._no_estimate if estimate is None else estimate
        scratch = self._workspace.scratch
        cost = _find()(self._graph, pointer_to(costs), scratch, src, dst, pointer_to(guess), pointer_to(self._way))
        return None if cost == UNREACHABLE else FoundPath(self._rows(src, dst), cost)

    def _rows(self, src: int, dst: int) -> tuple[int, ...]:
        rows: list[int] = []
        switch = dst
        while switch != src:
            rows.append(int(self._way[switch]))
            switch = int(self.table.tail[rows[-1]])
        return tuple(reversed(rows))


@cache
def _grow() -> Callable[..., None]:
    return kernel_library(grow_tree).bind(grow_tree)


@cache
def _find() -> Callable[..., int]:
    return kernel_library(find_path).bind(find_path)
