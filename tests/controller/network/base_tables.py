"""Tables of a fabric without any requests: ports, base routes, telemetry."""

from __future__ import annotations

from collections.abc import Sequence, Set

from controller.network.base_paths import next_hops
from controller.network.tables.base import WATCH_ALL, telemetry_entities
from controller.network.tables.entities import Entities, index
from controller.network.tables.routing import hash_entity, route_entities
from controller.network.tables.sources import source_entities
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from dataplane.topology.values import LinkKey, Topology


def base_entities(
    topology: Topology,
    watches: Sequence[Watch] = WATCH_ALL,
    reporting: Reporting = NO_REPORTING,
    domain: IntDomain = DEFAULT_DOMAIN,
    down: Set[LinkKey] = frozenset(),
) -> dict[str, Entities]:
    """Return the entries that a topology implies for each switch: ports, base routes and telemetry.

    Routes and reports avoid links that are `down`. Raise ControllerError for settings that do not fit the
    topology or each other.
    """
    hops = next_hops(topology, down)
    entities_by_switch = telemetry_entities(topology, watches, reporting, domain, down)
    for switch, entities in entities_by_switch.items():
        routes = hash_entity(topology, switch), *route_entities(topology, hops, switch)
        entities_by_switch[switch] = {**entities, **index((*routes, *source_entities(topology, switch, ())))}
    return entities_by_switch
