"""The least cost from every switch to every switch, kept up to date link by link, and the paths that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.compiled import compiled
from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE, Costs
from controller.network.algorithms.kernels.trees import grow_trees, repair_trees
from controller.network.algorithms.link_table import Ids, LinkTable
from controller.network.algorithms.structures import Changed, Changes, Workspace, graph_of
from dataplane.native import pointer_to

REPAIR_SHARE = 0.05
"""Share of changed links above which computing every tree is faster than repairing them."""


@dataclass(frozen=True, slots=True, eq=False)
class ChangedPairs:
    """Pairs of switches whose least cost has changed; both columns None: any pair may have."""

    destination: Ids | None
    switch: Ids | None


class DestinationTrees:
    """For each destination switch the shortest path tree towards it; `distance[destination, switch]` is a cost.

    Of the links on shortest paths the one of the lowest port is taken: paths follow from costs alone, not from the
    order in which costs changed. Memory: 8 bytes a pair of switches. `threads` share the destinations among them.
    """

    def __init__(self, table: LinkTable, costs: Costs, *, threads: int = 1, repair_share: float = REPAIR_SHARE) -> None:
        self.table = table
        self._most_repaired = max(1.0, repair_share * len(table.links))
        self.costs = costs.astype(np.uint64)
        self._size = len(table.switches)
        self.distance = np.empty((self._size, self._size), np.uint64)
        self._graph = graph_of(table)
        self._entering = np.empty(len(table.links), np.uint64)
        self._place_entering = np.argsort(table.in_link)
        self._workspaces = [Workspace.of(table) for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="trees") if threads > 1 else None
        self.regrow()

    def regrow(self) -> None:
        """Compute every tree from the costs."""
        self._entering[:] = self.costs[self.table.in_link]
        self._share_out(self._grow)

    def update(self, rows: npt.ArrayLike, costs: npt.ArrayLike) -> ChangedPairs:
        """Give links (each once) their new costs; return between which switches the least cost has changed."""
        links, after = np.asarray(rows, np.uint32), np.asarray(costs, np.uint64)
        before = self.costs[links]
        differs = before != after
        links, before = links[differs], before[differs]
        self.costs[links] = after[differs]
        self._entering[self._place_entering[links]] = after[differs]
        if len(links) > self._most_repaired:
            self.regrow()
            return ChangedPairs(None, None)
        parts = self._share_out(lambda workspace, first, last: self._repair(workspace, first, last, links, before))
        return ChangedPairs(
            np.concatenate([destinations for destinations, _ in parts]),
            np.concatenate([switches for _, switches in parts]),
        )

    def cost(self, src: int, dst: int) -> int | None:
        """Return the least cost from a switch to a destination, None where no path leads there."""
        distance = int(self.distance[dst, src])
        return None if distance == UNREACHABLE else distance

    def next_links(self, switch: int, dst: int) -> Iterator[int]:
        """Yield the rows of the links by which the shortest paths leave a switch, in order of port."""
        row = self.distance[dst]
        own = int(row[switch])
        if own == UNREACHABLE:
            return
        for link in self.table.leaving(switch):
            step, beyond = int(self.costs[link]), int(row[self.table.head[link]])
            if step != FORBIDDEN and beyond != UNREACHABLE and step + beyond == own:
                yield link

    def tight_links(self, dst: int) -> npt.NDArray[np.intp]:
        """Return the rows of all links by which shortest paths to a destination lead, in order of switch and port."""
        row = self.distance[dst]
        own, beyond = row[self.table.tail], row[self.table.head]
        usable = (self.costs != FORBIDDEN) & (beyond != UNREACHABLE)
        return np.flatnonzero(usable & (beyond + self.costs == own))

    def path(self, src: int, dst: int) -> tuple[int, ...] | None:
        """Return the rows of the links of the shortest path (lowest ports on ties), None where there is none."""
        if self.cost(src, dst) is None:
            return None
        rows: list[int] = []
        switch = src
        while switch != dst:
            rows.append(next(self.next_links(switch, dst)))
            switch = int(self.table.head[rows[-1]])
        return tuple(rows)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    def _grow(self, workspace: Workspace, first: int, last: int) -> None:
        compiled(grow_trees)(
            self._graph,
            pointer_to(self._entering),
            workspace.scratch,
            first,
            last,
            pointer_to(self.distance.reshape(-1)),
        )

    def _repair(self, workspace: Workspace, first: int, last: int, links: Ids, before: Costs) -> tuple[Ids, Ids]:
        room = (last - first) * self._size
        destination, switch = np.empty(room, np.uint32), np.empty(room, np.uint32)
        changed = Changed(room=room, destination=pointer_to(destination), switch=pointer_to(switch))
        changes = Changes(count=len(links), link=pointer_to(links), before=pointer_to(before))
        compiled(repair_trees)(
            self._graph,
            pointer_to(self.costs),
            pointer_to(self._entering),
            workspace.scratch,
            first,
            last,
            pointer_to(self.distance.reshape(-1)),
            changes,
            changed,
        )
        return destination[: changed.count].copy(), switch[: changed.count].copy()

    def _share_out(self, work: Callable[[Workspace, int, int], Any]) -> Sequence[Any]:
        """Return the results for each thread's part of the destinations, in order."""
        bounds = [self._size * part // len(self._workspaces) for part in range(len(self._workspaces) + 1)]
        parts = (self._workspaces, bounds[:-1], bounds[1:])
        return list(map(work, *parts) if self._pool is None else self._pool.map(work, *parts))
