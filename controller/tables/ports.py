"""Who a switch is and what its ports are: `node`, `egress_ports` (p4/egress) and `port_roles` (p4/ingress)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy import P4TableAction, P4TableEntry, P4TableMatch

from controller.tables.entities import Entity
from dataplane.fabric.addressing import mac_at
from dataplane.fabric.topology import Topology


def port_entities(topology: Topology, switch: str) -> Iterator[Entity]:
    """Yield a switch's node id, the source address and role of each port it sends on, and its edge ports."""
    node_id = topology.switch[switch].node_id
    yield P4TableEntry("node", action=P4TableAction("set_node", node_id=node_id), is_default_action=True)
    for port, peer in sorted(topology.neighbours[switch].items()):
        edge = peer.node in topology.host
        yield P4TableEntry(
            "egress_ports",
            match=P4TableMatch(egress_port=port),
            action=P4TableAction(
                "set_egress_port", src_mac=mac_at(topology, switch, port), sink=int(edge), mtu_bytes=0, strip_at_mtu=0
            ),
        )
        if edge:
            yield P4TableEntry(
                "port_roles", match=P4TableMatch(ingress_port=port), action=P4TableAction("set_source_port")
            )
