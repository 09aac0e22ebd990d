"""The k shortest paths without loops (Yen, "Finding the k shortest loopless paths in a network", 1971)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from controller.network.algorithms.costs import FORBIDDEN, Costs
from controller.network.algorithms.search import FoundPath, PathSearch

Rows = tuple[int, ...]


def shortest_paths(
    search: PathSearch, costs: Costs, src: int, dst: int, estimate: Costs | None = None
) -> Iterator[FoundPath]:
    """Yield all simple paths in order of cost, each once; the order of equal ones is unspecified.

    `estimate` are the distances to the destination under the same costs, if they are known; the search for each
    deviation is drawn along them.
    """
    beyond = search.distances(costs, dst) if estimate is None else estimate
    first = search.path(costs, src, dst, beyond)
    shortest: list[Rows] = []
    waiting: list[tuple[int, Rows, int]] = [] if first is None else [(first.cost, first.rows, 0)]
    while waiting:
        cost, rows, left_at = heapq.heappop(waiting)
        yield FoundPath(rows, cost)
        shortest.append(rows)
        for deviation in _deviations(search, costs, src, dst, beyond, shortest, left_at):
            heapq.heappush(waiting, deviation)


def _deviations(  # noqa: PLR0917 - one call, once
    search: PathSearch, costs: Costs, src: int, dst: int, beyond: Costs, shortest: list[Rows], left_at: int
) -> Iterator[tuple[int, Rows, int]]:
    """Yield, for each position from `left_at` on of the path found last, the best new path that leaves it there.

    Up to `left_at` that path coincides with an earlier one, whose deviations there are already queued (Lawler 1972).
    """
    table, last = search.table, shortest[-1]
    open_costs = costs.copy()
    switch, begun = src, 0
    for position, row in enumerate(last):
        if position >= left_at:
            taken = [rows[position] for rows in shortest if len(rows) > position and rows[:position] == last[:position]]
            kept = open_costs[taken]
            open_costs[taken] = FORBIDDEN
            rest = search.path(open_costs, switch, dst, beyond)
            open_costs[taken] = kept
            if rest is not None:
                yield begun + rest.cost, last[:position] + rest.rows, position
        open_costs[table.entering(switch)] = FORBIDDEN  # the path may not revisit a switch
        begun += int(costs[row])
        switch = int(table.head[row])


def k_shortest(search: PathSearch, costs: Costs, src: int, dst: int, k: int) -> tuple[FoundPath, ...]:
    """Return the k simple paths of least cost, fewer if there are no more."""
    paths = shortest_paths(search, costs, src, dst)
    return tuple(islice(paths, k))
