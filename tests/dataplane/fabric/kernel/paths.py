"""Paths for a kernel fabric of two switches, pushed by a foreign controller."""

from __future__ import annotations

import asyncio
from pathlib import Path

import finsy as fy

from dataplane.fabric.kernel import KernelFabric
from dataplane.topology.addressing import mac_at
from tests.compiled_fabric import compile_fabric
from tests.waiting import finish_within

BUILD = Path(__file__).parents[4] / "p4" / "build"
WAIT_S = 30.0


def install_paths(fabric: KernelFabric) -> None:
    """Push the program to both switches and send every host's packets along the chain of the two."""
    compile_fabric()
    asyncio.run(finish_within(_install_paths(fabric), WAIT_S))


async def _install_paths(fabric: KernelFabric) -> None:
    topology = fabric.topology
    for node in topology.switches:
        options = fy.SwitchOptions(
            p4info=BUILD / "fabric.p4info.txtpb", p4blob=BUILD / "fabric.json", device_id=node.node_id
        )
        async with fy.Switch(node.name, fabric.p4runtime_address(node.name), options) as switch:
            for port, far in topology.neighbours[node.name].items():
                mac = mac_at(topology, node.name, port)
                edge = int(far.node in topology.host)
                action = fy.P4TableAction("set_egress_port", src_mac=mac, sink=edge, mtu_bytes=0, strip_at_mtu=0)
                await switch.write(
                    [+fy.P4TableEntry("egress_ports", match=fy.P4TableMatch(egress_port=port), action=action)]
                )
            for host in topology.hosts:
                direct = topology.attachment[host.name].node == node.name
                port = 1 if direct else 2
                far = topology.neighbours[node.name][port]
                action = fy.P4TableAction("forward", egress_port=port, dst_mac=mac_at(topology, far.node, far.port))
                for table, address in (("ipv4", host.ipv4), ("ipv6", host.ipv6)):
                    match = fy.P4TableMatch(dst_addr=str(address))
                    await switch.write([+fy.P4TableEntry(f"{table}_destination_paths", match=match, action=action)])
