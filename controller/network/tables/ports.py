"""Entries for a switch's identity and ports: `node`, `egress_ports` (p4/egress) and `port_roles` (p4/ingress).

A host's port accepts the host's own addresses; networks behind it are in `controller/network/tables/sources.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.network.tables.entities import Entity
from controller.network.tables.routing import IPV4, IPV6
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from dataplane.topology.addressing import mac_at
from dataplane.topology.values import HostNode, Topology

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
    """Return what a port carries of itself: a host's addresses; anything from a switch."""
    if host is None:
        return {"addr": 0, "mask": 0, "ipv6_addr": 0, "ipv6_mask": 0}
    ipv6_addr, ipv6_mask = _NOTHING if host.ipv6 is None else (int(host.ipv6), IPV6.mask)
    return {"addr": int(host.ipv4), "mask": IPV4.mask, "ipv6_addr": ipv6_addr, "ipv6_mask": ipv6_mask}
