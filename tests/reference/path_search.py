"""The same algorithms as the kernels have, plainly: slow, and what the kernels are tested against."""

from __future__ import annotations

import heapq

import numpy as np

from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE, Costs
from controller.network.algorithms.kernels.width_trees import WIDEST
from controller.network.algorithms.link_table import LinkTable, Longs
from controller.network.algorithms.search import FoundPath


def distances(table: LinkTable, costs: Costs, dst: int) -> Costs:
    """Return the least cost from every switch to a destination, UNREACHABLE where no path leads there."""
    best: dict[int, int] = {}
    queue = [(0, dst)]
    while queue:
        reached, switch = heapq.heappop(queue)
        if switch in best:
            continue
        best[switch] = reached
        for row in table.entering(switch):
            if costs[row] != FORBIDDEN:
                heapq.heappush(queue, (reached + int(costs[row]), int(table.tail[row])))
    return np.array([best.get(switch, UNREACHABLE) for switch in range(len(table.switches))], np.uint64)


def path(table: LinkTable, costs: Costs, src: int, dst: int) -> FoundPath | None:
    """Return a path of least cost, the lowest ports on ties; None where there is none."""
    beyond = distances(table, costs, dst)
    if beyond[src] == UNREACHABLE:
        return None
    rows: list[int] = []
    switch = src
    while switch != dst:
        rows.append(
            next(
                row
                for row in table.leaving(switch)
                if costs[row] != FORBIDDEN
                and beyond[table.head[row]] != UNREACHABLE
                and int(costs[row]) + int(beyond[table.head[row]]) == int(beyond[switch])
            )
        )
        switch = int(table.head[rows[-1]])
    return FoundPath(tuple(rows), int(beyond[src]))


def widths(table: LinkTable, width_bps: Longs, src: int) -> Longs:
    """Return the width of the widest path from a switch to every switch, 0 where no path leads there."""
    best = np.zeros(len(table.switches), np.int64)
    best[src] = WIDEST
    for _ in table.switches:
        for row, (tail, head) in enumerate(zip(table.tail, table.head, strict=True)):
            best[head] = max(best[head], min(int(width_bps[row]), int(best[tail])))
    return best
