"""Which addresses may come in at hosts' ports beside their own: networks that hosts route, never those of switches."""

from __future__ import annotations

from collections.abc import Sequence

from controller.owners.base import TableOwner
from controller.tables.entities import Entities, index
from controller.tables.sources import TABLES, RoutedNetworks, check_networks, source_entities
from dataplane.topology.values import Topology


class SourcesOwner(TableOwner):
    """Owns the tables of source addresses; hosts' own are in `port_roles`, which is telemetry's."""

    name = "sources"
    tables = TABLES

    def __init__(self, topology: Topology, routed: Sequence[RoutedNetworks] = ()) -> None:
        """Raise ControllerError for networks that do not fit the topology."""
        super().__init__()
        self._topology = topology
        self._wanted: dict[str, Entities] = {}
        self.want(routed)

    def want(self, routed: Sequence[RoutedNetworks]) -> None:
        """Want these networks from now on; raise ControllerError, and change nothing, if they do not fit."""
        check_networks(self._topology, routed)
        self._wanted = {
            node.name: index(source_entities(self._topology, node.name, routed)) for node in self._topology.switches
        }

    def wanted(self, switch: str) -> Entities:
        """Return the switches' addresses and the networks behind a switch's hosts."""
        return self._wanted[switch]
