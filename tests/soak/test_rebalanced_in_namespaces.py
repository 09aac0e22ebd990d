"""Small flows spread unevenly by the hash are rebalanced, with real packets and real daemons."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.values import FlowKey
from controller.network.tables.path_choice import chosen, digest, flow_hash
from dataplane.fabric.hosts import Flow, flow_between
from dataplane.fabric.kernel import KernelFabric
from dataplane.topology.families import leaf_spine
from dataplane.wire.ipv4 import PROTOCOL_UDP
from tests.integration.kernel_circle import FLOW_END_NS, MS, Circle

pytestmark = [pytest.mark.root, pytest.mark.slow]

S = 1000 * MS
TOPOLOGY = leaf_spine(2, 2, 2, rate="4 Mbit/s", delay="50 us")
SIDES = {"spine1": 16, "spine2": 4}
RATE_BPS = 250_000
PAIRS = (("h1", "h3"), ("h2", "h4"))


def small_flows() -> list[Flow]:
    """Return flows from leaf1 to leaf2; equal weights lead the given number over each spine."""
    flows, left, number = [], dict(SIDES), 0
    while any(left.values()):
        number += 1
        src, dst = PAIRS[number % 2]
        flow = flow_between(TOPOLOGY, number, src, dst, RATE_BPS, start_ns=number * MS, stop_ns=FLOW_END_NS)
        key = FlowKey(TOPOLOGY.host[src].ipv4, TOPOLOGY.host[dst].ipv4, PROTOCOL_UDP, flow.src_port, flow.dst_port)
        spine = tuple(SIDES)[chosen((1, 1), digest(flow_hash(key), TOPOLOGY.switch["leaf1"].node_id))]
        if left[spine]:
            left[spine] -= 1
            flows.append(flow)
    return flows


def test_a_full_uplink_is_relieved_by_weights(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    flows = small_flows()
    with KernelFabric(TOPOLOGY) as fabric:
        # The first decision may be made while the flows' rates are still uncertain: it does not hold for minutes.
        circle = Circle(fabric, tmp_path, flows=(), hold_down_ns=2 * S)
        for name in ("collector", "controller"):
            circle.start(name)
        fabric.wait_ready()
        circle.until(lambda: circle.log_count(": reconciled, ") >= len(TOPOLOGY.switches), "the controller")
        with circle.traffic(*flows) as traffic:
            circle.until(lambda: all(traffic.received(flow.flow_id) for flow in flows), "packets of every flow")
            circle.start("paths")
            circle.until(lambda: bool(circle.routes().weighted), "a change of weights")
            changed_ns = traffic.now_ns()
            traffic.pass_packets(flows[0].flow_id, 300)
            end_ns = traffic.now_ns()
        [route] = circle.routes().weighted
        assert (route.switch, route.destination) == ("leaf1", "leaf2")
        later = [traffic.measure(flow.flow_id, end_ns - 3 * S, end_ns) for flow in flows]
        delays = [seen.delay_mean_ns for seen in later if seen.delay_mean_ns is not None]
        print(f"weights after {changed_ns / MS:.0f} ms: {route.next_hops}; then {max(delays) / MS:.1f} ms at most")
        assert sum(seen.lost for seen in later) == 0
        assert max(delays) < 100 * MS  # a full queue takes half a second
