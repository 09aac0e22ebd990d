"""The path hash recomputed: every packet of the real program takes the predicted port."""

from __future__ import annotations

from collectors.values import FlowKey
from controller.network.base_paths import next_hops
from controller.network.intents import RouteSet, WeightedRoute
from controller.network.tables.path_choice import chosen, digest, flow_hash
from controller.network.virtual import NO_HELLOS, VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.families import leaf_spine
from dataplane.wire.ipv4 import PROTOCOL_UDP

MS = 1_000_000
WEIGHTS = (("spine1", 3), ("spine2", 5), ("spine3", 1))


def test_each_flow_leaves_by_the_port_of_its_hash() -> None:
    topology = leaf_spine(3, 2, 1)
    fabric = VirtualFabric(topology, record_hops=True)
    controller = VirtualController.over(fabric, watches=(), hellos=NO_HELLOS)
    controller.start()
    controller.submit(RouteSet(1, (), (WeightedRoute("leaf1", "leaf2", WEIGHTS),)))
    expected = {}
    for number in range(1, 61):
        version = 4 if number % 3 else 6
        flow = flow_between(topology, number, "h1", "h2", 1_000_000, start_ns=20 * MS, ip_version=version)
        fabric.start_flow("h1", flow)
        src, dst = topology.host["h1"], topology.host["h2"]
        ends = (src.ipv4, dst.ipv4) if version == 4 else (src.ipv6, dst.ipv6)
        assert ends[0] is not None
        assert ends[1] is not None
        key = FlowKey(ends[0], ends[1], PROTOCOL_UDP, flow.src_port, flow.dst_port)
        index = chosen([weight for _, weight in WEIGHTS], digest(flow_hash(key), topology.switch["leaf1"].node_id))
        expected[number] = WEIGHTS[index][0]
    fabric.run_until(30 * MS)
    assert fabric.hops is not None
    taken = {
        hop.flow_id: topology.neighbours["leaf1"][hop.out_port].node
        for hop in fabric.hops.hops
        if hop.switch == "leaf1" and hop.flow_id in expected
    }
    assert taken == expected
    assert len(next_hops(topology)["leaf2"]["leaf1"]) == 3
    assert set(taken.values()) == {"spine1", "spine2", "spine3"}
