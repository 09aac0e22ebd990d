"""Table entries of switches, apart from routes, that follow from a topology: ports, telemetry, reports; their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.base_paths import next_hops
from controller.network.tables.entities import Entities, Entity, index
from controller.network.tables.routing import IPV4, IPV6
from controller.network.tables.telemetry.drop_watch import watches_full_queues
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain, check_domain, domain_entities
from controller.network.tables.telemetry.int_watch import Watch, watchlist_entities
from controller.network.tables.telemetry.report import report_entities
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting, reporting_entities
from dataplane.topology.addressing import mac_at
from dataplane.topology.values import CollectorAddress, HostNode, LinkKey, Topology

# Entries for a switch's identity and ports: `node`, `egress_ports` (p4/egress) and `port_roles` (p4/ingress).
#
# A host's port accepts the host's own addresses; networks behind it are in `controller/network/tables/sources.py`.


_NOTHING = 1, 0
"""Under an empty mask no address is 1."""


def port_entities(topology: Topology, switch: str, domain: IntDomain = DEFAULT_DOMAIN) -> Iterator[Entity]:
    """Yield a switch's node id, each port's source address, role and MTU, and the source addresses it accepts."""
    node_id = topology.switch[switch].node_id
    yield P4TableEntry("node", action=P4TableAction("set_node", node_id=node_id), is_default_action=True)
    for port in sorted(topology.neighbours[switch]):
        role = domain.role(topology, switch, port)
        yield P4TableEntry(
            "egress_ports",
            match=P4TableMatch(egress_port=port),
            action=P4TableAction(
                "set_egress_port",
                src_mac=mac_at(topology, switch, port),
                sink=int(bool(role.sink)),
                mtu_bytes=role.mtu_bytes or 0,
                strip_at_mtu=int(domain.strip_at_mtu),
            ),
        )
        host = topology.host.get(topology.neighbours[switch][port].node)
        if role.source or host is not None:
            name = "set_source_port" if role.source else "set_host_port"
            action = P4TableAction(name, **_own_addresses(host))
            yield P4TableEntry("port_roles", match=P4TableMatch(ingress_port=port), action=action)


def _own_addresses(host: HostNode | None) -> dict[str, int]:
    """Return the source addresses that a port accepts by default: a host's own; any from a switch."""
    if host is None:
        return {"addr": 0, "mask": 0, "ipv6_addr": 0, "ipv6_mask": 0}
    ipv6_addr, ipv6_mask = _NOTHING if host.ipv6 is None else (int(host.ipv6), IPV6.mask)
    return {"addr": int(host.ipv4), "mask": IPV4.mask, "ipv6_addr": ipv6_addr, "ipv6_mask": ipv6_mask}


FILL_ORDER = (
    "node",
    "egress_ports",
    "int_marker",
    "int_tunnels",
    "switch_addresses",
    "ipv4_sources",
    "ipv6_sources",
    "port_roles",
    "report_target",
    "collector",
    "gather",
    "path_hash",
    "ipv4_flow_paths",
    "ipv6_flow_paths",
    "ipv4_destination_paths",
    "ipv6_destination_paths",
    "ipv4_routes",
    "ipv6_routes",
    "ipv4_watchlist",
    "ipv6_watchlist",
    "ipv4_drop_watch",
    "ipv6_drop_watch",
    "other_drop_watch",
    "drop_reports",
    "queue_watch",
    "ipv4_flow_filter",
    "ipv6_flow_filter",
    "congestion",
    "aggregation_reports",
    "aggregation_replicas",
    "aggregation_peers",
    "aggregation_jobs",
)
"""The order in which an empty switch is filled: its identity, then explicit paths (before routes, so that a flow never
falls back to its base route on the way), then routes, telemetry when reports can leave, and finally jobs, whose
children have their entries before they count.
"""

RULE_ROOM = {
    "ipv4_watchlist": 1024,
    "ipv6_watchlist": 1024,
    "ipv4_drop_watch": 1024,
    "ipv6_drop_watch": 1024,
    "other_drop_watch": 32,
    "ipv4_flow_filter": 1024,
    "ipv6_flow_filter": 1024,
}
"""Sizes of the program's tables of rules."""

WATCH_ALL = (Watch(),)
"""The default: every UDP and TCP packet carries telemetry."""


NO_COLLECTORS: Final[Mapping[str, CollectorAddress]] = MappingProxyType({})
"""The default: all switches report to the topology's collector."""


def telemetry_entities(  # noqa: PLR0917 - all of what telemetry depends on
    topology: Topology,
    watches: Sequence[Watch] = WATCH_ALL,
    reporting: Reporting = NO_REPORTING,
    domain: IntDomain = DEFAULT_DOMAIN,
    down: Set[LinkKey] = frozenset(),
    collectors: Mapping[str, CollectorAddress] = NO_COLLECTORS,
) -> dict[str, Entities]:
    """Return each switch's ports, telemetry roles, reports and their destination, by switch name.

    Reports do not take links that are `down`, and go to the switch's own of several `collectors`, else the topology's.
    Raise ControllerError for settings that do not fit the topology or each other.
    """
    check_domain(topology, domain)
    hops = next_hops(topology, down)
    edges = {
        node.name
        for node in topology.switches
        if any(domain.role(topology, node.name, port).source for port in topology.neighbours[node.name])
    }

    def of(switch: str) -> Iterator[Entity]:
        yield from port_entities(topology, switch, domain)
        yield from domain_entities(domain)
        full_queues = watches_full_queues(reporting.drops)
        yield from report_entities(topology, hops, switch, to=collectors.get(switch), full_queues=full_queues)
        if topology.collector is not None:
            yield from watchlist_entities(topology, watches, at_edge=switch in edges)
            yield from reporting_entities(topology, switch, reporting)

    by_switch: dict[str, Entities] = {node.name: index(of(node.name)) for node in topology.switches}
    for entities in by_switch.values():
        check_room(entities)
    return by_switch


def report_routes(
    topology: Topology,
    reporting: Reporting,
    down: Set[LinkKey],
    collectors: Mapping[str, CollectorAddress] = NO_COLLECTORS,
) -> dict[str, Entities]:
    """Return by switch name the part of `telemetry_entities` that depends on the way to the switch's collector."""
    hops, full_queues = next_hops(topology, down), watches_full_queues(reporting.drops)
    return {
        node.name: index(
            report_entities(topology, hops, node.name, to=collectors.get(node.name), full_queues=full_queues)
        )
        for node in topology.switches
    }


def check_room(entities: Entities) -> None:
    """Raise ControllerError naming the first table that a switch has too little room in."""
    for table, count in Counter(key.table for key in entities).items():
        if count > RULE_ROOM.get(table, count):
            raise ControllerError(f"{table}: {count} entries needed, but a switch has room for {RULE_ROOM[table]}")
