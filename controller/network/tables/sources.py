"""Extra source addresses allowed at a host's port: `switch_addresses`, `ipv4_sources`, `ipv6_sources`.

The program is p4/ingress/source_addresses.p4; hosts' own addresses are in `port_roles`
(controller/network/tables/base.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.tables.entities import Entity
from controller.network.tables.routing import FAMILIES, IPV4, IPV6
from dataplane.config import Strict
from dataplane.topology.addressing import SWITCH_ADDRESSES
from dataplane.topology.values import Topology

SWITCH_TABLE: Final = "switch_addresses"
TABLES: Final = frozenset({SWITCH_TABLE, *(family.sources for family in FAMILIES)})
MAX_NETWORKS: Final = 1024
"""Entries of `ipv4_sources`, and of `ipv6_sources`."""


class RoutedNetworks(Strict, frozen=True):
    """Networks behind a host that routes: their packets may enter at its port."""

    host: str
    """Name of the host."""
    networks: tuple[str, ...]
    """Prefixes, such as 192.168.7.0/24, fd00:7::/64, or 0.0.0.0/0 for any address but those of switches."""


def source_entities(topology: Topology, switch: str, routed: Sequence[RoutedNetworks]) -> Iterator[Entity]:
    """Yield the entries of a switch with hosts; raise ControllerError for an invalid network or an unknown host."""
    if all(end.node not in topology.host for end in topology.neighbours[switch].values()):
        return
    addr, mask = SWITCH_ADDRESSES
    action = P4TableAction("set_switch_addresses", addr=addr, mask=mask)
    yield P4TableEntry(SWITCH_TABLE, action=action, is_default_action=True)
    counts = dict.fromkeys(FAMILIES, 0)
    for port, network in sorted(_networks(topology, switch, routed), key=str):
        family = IPV4 if network.version == IPV4.version else IPV6
        counts[family] += 1
        match = P4TableMatch(ingress_port=port)
        if network.prefixlen:
            match["src_addr"] = (int(network.network_address), network.prefixlen)
        yield P4TableEntry(family.sources, match=match, action=P4TableAction("NoAction"))
    for family, count in counts.items():
        if count > MAX_NETWORKS:
            raise ControllerError(
                f"routed_networks: {count} needed in {family.sources} of {switch}, but there is room for {MAX_NETWORKS}"
            )


def check_networks(topology: Topology, routed: Sequence[RoutedNetworks]) -> None:
    """Raise ControllerError for an unknown host or an invalid network."""
    for each in routed:
        if each.host not in topology.host:
            raise ControllerError(f"routed_networks: topology {topology.name} has no host {each.host!r}")
        for text in each.networks:
            _network(each.host, text)


def _networks(
    topology: Topology, switch: str, routed: Sequence[RoutedNetworks]
) -> set[tuple[int, IPv4Network | IPv6Network]]:
    networks = set()
    for each in routed:
        edge = topology.attachment[each.host]
        if edge.node == switch:
            networks |= {(edge.port, _network(each.host, text)) for text in each.networks}
    return networks


def _network(host: str, text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError as error:
        raise ControllerError(f"routed_networks: {host}: {error}") from error
