"""Rebalanced groups, the whole loop in virtual time: many small flows, unevenly hashed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from collectors.collector import Collector
from collectors.values import FlowKey
from controller.network.algorithms.link_table import LinkTable
from controller.network.base_paths import next_hops
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import BalanceSettings, DecideSettings
from controller.network.paths.telemetry_load import TelemetryLoad
from controller.network.tables.path_choice import chosen, digest, flow_hash
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.values import Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
S = 1000 * MS


@dataclass
class Circle:
    """A fabric with its collector, path server and controller on one clock; numbers of flows are their names."""

    topology: Topology
    decide: DecideSettings
    flows: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.fabric = VirtualFabric(self.topology, pipeline_factory=compiled_pipeline)
        self.controller = VirtualController.over(self.fabric)
        self.controller.start()
        self.collector = Collector(self.topology, self.fabric.clock)
        self.paths = PathServerCore(self.topology, self.decide)
        self.receivers = {host.name: Receiver() for host in self.topology.hosts}
        for name, receiver in self.receivers.items():
            self.fabric.host(name).on_frame(_measuring(receiver))
        assert self.topology.collector is not None
        self.fabric.host(self.topology.collector.host).on_frame(self._report)

    def send(self, pairs: list[tuple[str, str]], at: str, sides: dict[str, int], rate_bps: int, start_ns: int) -> None:
        """Let pairs of hosts send in turn, with this many flows hashed to each neighbour of their first switch."""
        left, number = dict(sides), 0
        while any(left.values()):
            number += 1
            src, dst = pairs[number % len(pairs)]
            flow = flow_between(self.topology, number, src, dst, rate_bps, start_ns=start_ns + number * MS // 10)
            side = self._side(src, dst, at, flow.src_port, flow.dst_port)
            if left.get(side, 0):
                left[side] -= 1
                self.flows[number] = dst
                self.fabric.start_flow(src, flow)

    def _side(self, src: str, dst: str, at: str, src_port: int, dst_port: int) -> str:
        hosts, edge = self.topology.host, self.topology.attachment[dst].node
        ways = next_hops(self.topology)[edge][at]
        hashed = flow_hash(FlowKey(hosts[src].ipv4, hosts[dst].ipv4, PROTOCOL_UDP, src_port, dst_port))
        return ways[chosen([1] * len(ways), digest(hashed, self.topology.switch[at].node_id))].head.node

    def run(self, end_ns: int) -> None:
        """Run to a time, deciding every 100 ms."""
        while self.fabric.now_ns < end_ns:
            self.fabric.run_until(min(end_ns, self.fabric.now_ns + 100 * MS))
            result = self.paths.step(self.collector.snapshot(), self.fabric.now_ns)
            if result is not None:
                self.controller.submit(result.routes)

    def lost(self, start_ns: int, end_ns: int) -> int:
        """Return the number of lost packets of all flows in a time span."""
        return sum(self.receivers[dst].measure(n, start_ns, end_ns).lost for n, dst in self.flows.items())

    def slowest_ms(self, start_ns: int, end_ns: int) -> float:
        """Return the maximum mean delay of any flow in a time span."""
        delays_ns = [self.receivers[dst].measure(n, start_ns, end_ns).delay_mean_ns for n, dst in self.flows.items()]
        return max(delay for delay in delays_ns if delay is not None) / MS

    def _report(self, frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == self.collector.report_udp_port:
            self.collector.receive(datagram.payload)


def _measuring(receiver: Receiver) -> Callable[[bytes, int], None]:
    def measure(frame: bytes, now_ns: int) -> None:
        receiver.receive(frame, now_ns)

    return measure


LEAVES = leaf_spine(2, 2, 2, rate="4 Mbit/s", delay="50 us")
TREE = fat_tree(4, rate="4 Mbit/s", delay="50 us")
RATE_BPS = 220_000
"""Rate per flow: with telemetry, 18 of 24 flows exceed one 4 Mbit/s link, and all 24 fit on two."""


def circle(topology: Topology, *, enabled: bool = True) -> Circle:
    """Return a loop in which 24 flows start at once, 18 of them on the first uplink of their switch."""
    decide = DecideSettings(watch=TelemetryLoad(), balance=BalanceSettings(enabled=enabled))
    made = Circle(topology, decide)
    if topology is LEAVES:
        made.send([("h1", "h3"), ("h2", "h4")], "leaf1", {"spine1": 18, "spine2": 6}, RATE_BPS, 500 * MS)
    else:
        made.send([("h5", "h15"), ("h6", "h16")], "edge2-1", {"agg2-1": 18, "agg2-2": 6}, RATE_BPS, 500 * MS)
    return made


def test_small_flows_stay_as_hashed_without_weights() -> None:
    left = circle(LEAVES, enabled=False)
    left.run(4 * S)
    assert left.paths.routes.weighted == ()
    assert not left.paths.decisions  # each pair of hosts is on two paths and does not fit on one
    assert left.slowest_ms(3 * S, 4 * S) > 200


@pytest.mark.parametrize("topology", [LEAVES, TREE], ids=lambda topology: topology.name)
def test_unevenly_hashed_small_flows_are_rebalanced(topology: Topology) -> None:
    mended = circle(topology)
    mended.run(4 * S)
    assert mended.paths.rebalances
    assert mended.paths.rebalances[0].time_ns <= 1500 * MS  # within a second of the first packet
    assert mended.lost(0, 4 * S) == 0
    assert mended.slowest_ms(3 * S, 4 * S) < 70
    assert not mended.paths.decisions
    changed = [(change.switch, change.destination) for change in mended.paths.rebalances]
    assert len(set(changed)) == len(changed)
    assert mended.controller.settled


def test_link_rows_are_in_the_hash_order_of_ports() -> None:
    for topology in (LEAVES, TREE):
        table = LinkTable.of(topology)
        ports = [(table.tail[row], topology.directed_links[key].tail.port) for row, key in enumerate(table.links)]
        assert ports == sorted(ports)
