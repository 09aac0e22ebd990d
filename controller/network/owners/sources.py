"""Extra source addresses allowed at hosts' ports: networks that hosts route, never those of switches."""

from __future__ import annotations

from collections.abc import Sequence

from controller.network.owners.base import TableOwner
from controller.network.tables.entities import Entities, index
from controller.network.tables.sources import TABLES, RoutedNetworks, check_networks, source_entities
from dataplane.topology.values import Topology


class SourcesOwner(TableOwner):
    """Owns the tables of source addresses; hosts' own are in `port_roles`, which is telemetry's."""

    name = "sources"
    tables = TABLES

    def __init__(self, topology: Topology, routed: Sequence[RoutedNetworks] = ()) -> None:
        """Raise ControllerError for networks that do not fit the topology."""
        super().__init__()
        self._topology = topology
        self._wanted = self.tables_of(routed)

    def tables_of(self, routed: Sequence[RoutedNetworks]) -> dict[str, Entities]:
        """Return each switch's tables for these networks; raise ControllerError if they do not fit the topology."""
        check_networks(self._topology, routed)
        return {
            node.name: index(source_entities(self._topology, node.name, routed)) for node in self._topology.switches
        }

    def want(self, tables: dict[str, Entities]) -> None:
        """Use the result of `tables_of` from now on."""
        self._wanted = tables

    def wanted(self, switch: str) -> Entities:
        """Return the switches' addresses and the networks behind a switch's hosts."""
        return self._wanted[switch]
