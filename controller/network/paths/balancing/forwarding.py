"""Forwarding of traffic without an explicit path: base routes, weights in force, and the hash's choices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from controller.network.algorithms.link_table import Flags, LinkTable
from controller.network.algorithms.trees import DestinationTrees
from controller.network.paths.balancing.values import GroupKey, LinkWeights
from controller.network.paths.deciding.graph import Rows
from controller.network.tables.path_choice import chosen, digest
from controller.network.tables.routing import MAX_GROUP_SIZE
from dataplane.topology.values import Topology


class Forwarding:
    """The next hops of every switch towards every other one; `weights` are those in force, by group.

    `trees` are the shortest path trees that base routes follow. Every next hop is one of theirs, so whatever the
    weights are, traffic always comes nearer to its destination.
    """

    def __init__(
        self, topology: Topology, trees: DestinationTrees, alive: Flags, weights: Mapping[GroupKey, LinkWeights]
    ) -> None:
        self.table: LinkTable = trees.table
        self._trees, self._alive = trees, alive
        self.weights = dict(weights)
        self._node_ids = [topology.switch[name].node_id for name in self.table.switches]
        self.base = lru_cache(maxsize=None)(self._base)
        self.digest = lru_cache(maxsize=65_536)(self._digest)

    def _base(self, switch: int, destination: int) -> LinkWeights:
        """Return the equally good links that base routes take, each with weight 1."""
        rows = list(self._trees.next_links(switch, destination))[:MAX_GROUP_SIZE]
        return tuple((row, 1) for row in rows)

    def usable(self, switch: int, destination: int) -> Rows:
        """Return the links of base routes that are alive."""
        return tuple(row for row, _ in self.base(switch, destination) if self._alive[row])

    def link_weights(self, switch: int, destination: int) -> LinkWeights:
        """Return the weighted links of a switch's traffic for a destination now; empty if it has no path."""
        return self.weights.get((switch, destination)) or self.base(switch, destination)

    def path(self, hashed: int, switch: int, destination: int) -> Rows | None:
        """Return the links that a flow of this hash takes from a switch on, None where there is no path."""
        rows: list[int] = []
        while switch != destination:
            link_weights = self.link_weights(switch, destination)
            if not link_weights:
                return None
            rows.append(link_weights[choice([weight for _, weight in link_weights], self.digest(switch, hashed))][0])
            switch = int(self.table.head[rows[-1]])
        return tuple(rows)

    def shares(self, switch: int, destination: int) -> list[tuple[Rows, float]]:
        """Return all paths from a switch on with the share of traffic that each gets, given infinitely many flows."""
        if switch == destination:
            return [((), 1.0)]
        link_weights = self.link_weights(switch, destination)
        total = sum(weight for _, weight in link_weights)
        return [
            ((row, *rest), weight / total * share)
            for row, weight in link_weights
            for rest, share in self.shares(int(self.table.head[row]), destination)
        ]

    def _digest(self, switch: int, hashed: int) -> int:
        return digest(hashed, self._node_ids[switch])


def choice(weights: Sequence[int], digested: int) -> int:
    """Return the index of the group's member that a digest falls on; a single member takes all."""
    return 0 if len(weights) == 1 else chosen(weights, digested)
