"""Parts of cost maps computed once per topology: links, hosts, and the shortest paths that base routes follow."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from controller.cluster.cost_map.columns import LinkColumns
from controller.common.errors import PathError
from controller.network.algorithms.costs import FORBIDDEN, UNREACHABLE
from controller.network.algorithms.link_table import Ids, LinkTable
from controller.network.algorithms.structures import graph_of
from controller.network.algorithms.trees import DestinationTrees
from dataplane.topology.values import LinkKey, Topology

_REMEMBERED: Final = 4
"""Sets of dead links whose base routes are cached."""


class CostModel:
    """A topology prepared for cost maps; rows of links are those of `table`, then each host's two links.

    Raises PathError for a topology without hosts, or with a host that has no switch.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.table = LinkTable.of(topology)
        self.hosts: tuple[str, ...] = tuple(node.name for node in topology.hosts)
        self.host_number = {name: number for number, name in enumerate(self.hosts)}
        loose = next((name for name in self.hosts if name not in topology.attachment), None)
        if loose is not None or not self.hosts:
            lack = "no hosts" if loose is None else f"a host without a switch: {loose}"
            raise PathError(f"topology {topology.name} has {lack}")
        number, edges = self.table.switch_number, [topology.attachment[name].node for name in self.hosts]
        self.host_switch: Ids = np.array([number[edge] for edge in edges], np.uint32)
        self.destinations: Ids = np.unique(self.host_switch)
        self.destination_number = {int(switch): index for index, switch in enumerate(self.destinations)}
        self.host_destination: Ids = np.searchsorted(self.destinations, self.host_switch).astype(np.uint32)
        ups = [LinkKey(name, edge) for name, edge in zip(self.hosts, edges, strict=True)]
        keys = [*self.table.links, *ups, *(LinkKey(key.dst, key.src) for key in ups)]
        self.nominal = LinkColumns.nominal(topology.directed_links[key] for key in keys)
        self.graph = graph_of(self.table)
        self.row_between = {(key.src, key.dst): row for row, key in enumerate(self.table.links)}
        self.base_weights = lru_cache(maxsize=_REMEMBERED)(self._base_weights)

    def number(self, host: str) -> int:
        """Return a host's index in `hosts`; raise PathError for an unknown one."""
        if host not in self.host_number:
            raise PathError(f"topology {self.topology.name} has no host {host!r}")
        return self.host_number[host]

    @property
    def inner(self) -> slice:
        """The rows of links between switches."""
        return slice(0, len(self.table.links))

    @property
    def up(self) -> slice:
        """The rows of the hosts' sending links, in order of hosts."""
        return slice(len(self.table.links), len(self.table.links) + len(self.hosts))

    @property
    def down(self) -> slice:
        """The rows of the hosts' receiving links, in order of hosts."""
        return slice(len(self.table.links) + len(self.hosts), None)

    def _base_weights(self, dead: frozenset[LinkKey], drained: frozenset[LinkKey]) -> Ids:
        """Return how base routes spread each destination's traffic: [destination, link], 0 for unused links."""
        table, costs = self.table, self.table.costs_around(dead, drained)
        distance = DestinationTrees(table, costs).distance[self.destinations]
        own, beyond = distance[:, table.tail], distance[:, table.head]
        usable = (costs != FORBIDDEN) & (beyond != UNREACHABLE)
        weights: Ids = np.ascontiguousarray(usable & (beyond + costs == own), np.uint32)
        return weights
