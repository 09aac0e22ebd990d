"""Assembly of the owners of a fabric's tables: the one place where the controller's features are put together.

A new feature is a new owner (`controller/network/owners`) and a line here; the coordinator and the drivers do not
change.
"""

from __future__ import annotations

from collections.abc import Sequence

from controller.network.aggregation.settings import AggregationSettings
from controller.network.aggregation.tables import AggregationTables
from controller.network.content.settings import StoreSettings
from controller.network.content.stores import Stores
from controller.network.coordinator import Coordinator
from controller.network.intents import RouteSet
from controller.network.owners.aggregation import AggregationOwner
from controller.network.owners.base import Owner
from controller.network.owners.content import ContentOwner
from controller.network.owners.flow_paths import FlowPathsOwner
from controller.network.owners.routes import RoutesOwner
from controller.network.owners.sources import SourcesOwner
from controller.network.owners.telemetry import Telemetry, TelemetryOwner
from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION
from controller.network.tables.sources import RoutedNetworks
from dataplane.topology.values import Topology

DEFAULT_TELEMETRY = Telemetry()


class Features:
    """The owners of a fabric's tables, and operations on them."""

    def __init__(
        self,
        topology: Topology,
        telemetry: Telemetry = DEFAULT_TELEMETRY,
        *,
        aggregation: AggregationSettings | None = None,
        newest_job: int = 0,
        store: StoreSettings | None = None,
        routed: Sequence[RoutedNetworks] = (),
        more: Sequence[Owner] = (),
    ) -> None:
        """Raise ControllerError for settings that do not fit the topology or each other.

        Jobs get numbers after `newest_job`. The program that holds content also does aggregation, so `store` implies
        it. `routed` are networks behind hosts that route; `more` are owners of tables that a program has in addition to
        ours.
        """
        self.topology = topology
        self.aggregation: AggregationOwner | None = None
        if aggregation is not None or store is not None:
            tables = AggregationTables(topology, aggregation or AggregationSettings(), newest_job)
            self.aggregation = AggregationOwner(tables)
        rules = () if self.aggregation is None else self.aggregation.rules()
        self.telemetry = TelemetryOwner(topology, telemetry, rules)
        self.sources = SourcesOwner(topology, routed)
        self.routes, self.flow_paths = RoutesOwner(topology), FlowPathsOwner(topology)
        self.content = None if store is None else ContentOwner(Stores(topology, store))
        owners = (self.telemetry, self.sources, self.routes, self.flow_paths, self.aggregation, self.content, *more)
        self.coordinator = Coordinator(topology, [owner for owner in owners if owner is not None])

    @property
    def program(self) -> str:
        """The bundled program that the switches should run."""
        return FABRIC if self.aggregation is None else FABRIC_AGGREGATION

    @property
    def route_set(self) -> RouteSet | None:
        """The newest accepted set of routes."""
        return self.flow_paths.routes

    def want(self, routes: RouteSet) -> None:
        """Take the newest full set of routes; raise ControllerError, and change nothing, if one is impossible."""
        paths = self.flow_paths.tables_of(routes)
        self.routes.want(routes.weighted, frozenset(routes.drained))
        self.flow_paths.want(routes, paths)

    def configure(self, telemetry: Telemetry, routed: Sequence[RoutedNetworks] | None = None) -> None:
        """Apply other telemetry, and other networks behind hosts unless None.

        Raise ControllerError, and change nothing, if they do not fit the topology.

        A switch that is read next is updated, without touching anything else, or, while the change has an earlier
        stage, to that stage.
        """
        sources = None if routed is None else self.sources.tables_of(routed)
        self.telemetry.want(telemetry)
        if sources is not None:
            self.sources.want(sources)
