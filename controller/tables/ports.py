"""Who a switch is and what its ports are: `node`, `egress_ports` (p4/egress) and `port_roles` (p4/ingress)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.tables.entities import Entity
from controller.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from dataplane.topology.addressing import mac_at
from dataplane.topology.values import Topology


def port_entities(topology: Topology, switch: str, domain: IntDomain = DEFAULT_DOMAIN) -> Iterator[Entity]:
    """Yield a switch's node id, the source address, role and MTU of each port it sends on, and its source ports."""
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
        if role.source:
            yield P4TableEntry(
                "port_roles", match=P4TableMatch(ingress_port=port), action=P4TableAction("set_source_port")
            )
