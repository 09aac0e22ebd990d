"""The cost map of a fabric in virtual time: its paths are those that packets take, on base, explicit and weighted ones.

Paths of packets are those that their telemetry reports.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from collectors.collector import Collector
from controller.cluster.cost_map import Basis, CostMap
from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual.fabric import VirtualFabric
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from dataplane.wire.packet import decode_udp_frame

US = 1_000
MS = 1_000_000
DIAMOND = """
millrace: 1
name: diamond
collector: {host: hc}
synchronised_clocks: true
defaults: {access: {rate: 1 Gbit/s, delay: 10 us}, link: {rate: 100 Mbit/s, delay: 1 ms}}
switches: [{name: a}, {name: b}, {name: c}, {name: d}]
hosts: [{name: ha, switch: a}, {name: hd, switch: d}, {name: hc, switch: b}]
links: [{a: a, b: b}, {a: a, b: c}, {a: b, b: d}, {a: c, b: d}, {a: b, b: c}]
"""


class Run:
    """A fabric under a virtual controller, with a collector."""

    def __init__(self, topology: Topology) -> None:
        self.fabric = VirtualFabric(topology)
        self.controller = VirtualController.over(self.fabric)
        self.controller.start()
        self.collector = Collector(topology, self.fabric.clock)
        self.controller.on_links(self.collector.note_links)
        self.fabric.host("hc").on_frame(self.receive)
        self.now_ns = 0

    def receive(self, frame: bytes, _: int) -> None:
        report = decode_udp_frame(frame)
        assert report is not None
        self.collector.receive(report.payload)

    def settle(self, routes: RouteSet) -> None:
        self.controller.submit(routes)
        while not self.controller.settled:
            self.wait(MS)

    def wait(self, time_ns: int) -> None:
        self.now_ns += time_ns
        self.fabric.run_until(self.now_ns)

    def send(self, flows: int) -> Counter[tuple[str, ...]]:
        """Let ha send to hd; return the number of flows on each path."""
        for number in range(flows):
            flow = flow_between(self.fabric.topology, number, "ha", "hd", 100_000, frame_bytes=100)
            start_ns = self.now_ns + number * 200 * US
            self.fabric.start_flow("ha", replace(flow, start_ns=start_ns, stop_ns=start_ns + 1))
        self.wait(flows * 200 * US + 50 * MS)
        states = self.collector.snapshot().paths.values()
        assert len(states) == flows
        return Counter(state.switches for state in states)

    @property
    def costs(self) -> CostMap:
        return CostMap.of(self.fabric.topology, self.collector.snapshot(), self.controller.routes)


@pytest.fixture
def run() -> Run:
    return Run(loads(DIAMOND))


def test_base_routes(run: Run) -> None:
    taken = run.send(60)
    paths = run.costs.cost("ha", "hd").paths
    assert {path.switches: path.share for path in paths} == {("a", "b", "d"): 0.5, ("a", "c", "d"): 0.5}
    assert taken.keys() == {path.switches for path in paths}


def test_a_path_of_its_own(run: Run) -> None:
    assert run.controller.routes == RouteSet(0, ())
    run.settle(RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "c", "b", "d")),)))
    taken = run.send(20)
    cost = run.costs.cost("ha", "hd")
    assert cost.explicit
    assert {path.switches for path in cost.paths} == taken.keys() == {("a", "c", "b", "d")}
    assert cost.delay_basis is Basis.MEASURED
    # The measured delay of packets: three links of 1 ms, plus the time to send 100 bytes.
    assert cost.delay_ns == pytest.approx(3 * MS, rel=0.05)


def test_weights(run: Run) -> None:
    run.settle(RouteSet(1, (), (WeightedRoute("a", "d", (("b", 1), ("c", 3))),)))
    taken = run.send(200)
    shares = {path.switches: path.share for path in run.costs.cost("ha", "hd").paths}
    assert shares == {("a", "c", "d"): 0.75, ("a", "b", "d"): 0.25}
    assert taken.keys() == shares.keys()
    assert taken["a", "c", "d"] == pytest.approx(150, abs=25)


def test_a_dead_link_is_gone_around(run: Run) -> None:
    run.fabric.set_link("a", "c", up=False, notice_after_ns=MS)
    run.wait(20 * MS)
    taken = run.send(30)
    cost = run.costs.cost("ha", "hd")
    assert {path.switches for path in cost.paths} == taken.keys() == {("a", "b", "d")}


def test_load_is_on_the_links_of_its_packets(run: Run) -> None:
    """The free rate of the path is what a running flow leaves, within the precision of telemetry."""
    run.settle(RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "c", "d")),)))
    flow = flow_between(run.fabric.topology, 1, "ha", "hd", 40_000_000)
    run.fabric.start_flow("ha", replace(flow, start_ns=run.now_ns))
    before = run.costs.with_load("ha", "hd", 40_000_000).cost("ha", "hd").available_bps
    run.wait(500 * MS)
    measured = run.costs.cost("ha", "hd").available_bps
    assert measured == pytest.approx(before, rel=0.05)
    assert before == 60_000_000
