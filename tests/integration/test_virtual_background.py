"""A fluid background over the switches' real program: routes, what samples measure, and the demo's decisions."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from collectors.collector import Collector
from collectors.settings import CollectorSettings, StateSettings
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import NO_HELLOS, VirtualController
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Arrivals, Flow, Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.fabric.virtual.background import FluidBackground
from dataplane.topology.file import load_topology, loads
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame
from tests.soak.fluid_decisions import answers, differences

MS = 1_000_000
FORK = loads(
    """\
millrace: 1
name: fork
collector: {host: c1}
defaults: {access: {rate: 100 Mbit/s, delay: 10 us}, link: {rate: 10 Mbit/s, delay: 1 ms, queue_frames: 50}}
switches: [{name: a}, {name: b}, {name: c}, {name: d}]
hosts: [{name: h1, switch: a}, {name: h2, switch: d}, {name: h3, switch: d}, {name: c1, switch: a}]
links: [{a: a, b: b}, {a: b, b: d}, {a: a, b: c}, {a: c, b: d, rate: 20 Mbit/s}, {a: b, b: c}]
"""
)
BY_B, BY_C = ("a", "b", "d"), ("a", "c", "d")


def ready(topology: Topology, *watches: Watch) -> tuple[VirtualFabric, VirtualController]:
    fabric = VirtualFabric(topology, seed=1)
    controller = VirtualController.over(fabric, watches=watches, hellos=NO_HELLOS)
    controller.start()
    return fabric, controller


def flow(number: int, rate_bps: int, dst: str = "h2", arrivals: Arrivals = Arrivals.CONSTANT) -> tuple[str, Flow]:
    return "h1", flow_between(FORK, number, "h1", dst, rate_bps, arrivals=arrivals)


def pin(fabric: VirtualFabric, controller: VirtualController, path: tuple[str, ...]) -> None:
    version = controller.routes.version + 1
    controller.submit(RouteSet(version, (Route(FlowSpec("h1", "h2"), path),)))
    fabric.run_until(fabric.now_ns + 50 * MS)


def test_with_all_packets_it_is_the_packet_fabric() -> None:
    measured = []
    for fluid in (False, True):
        fabric, _ = ready(FORK)
        receiver = Receiver()
        fabric.host("h2").on_frame(receiver.receive)
        flows = [flow(number, 4_000_000, arrivals=Arrivals.POISSON) for number in range(3)]
        if fluid:
            FluidBackground(fabric, flows, sample_every=1)
        else:
            for host, each in flows:
                fabric.start_flow(host, each)
        fabric.run_until(300 * MS)
        measured.append([receiver.measure(number, 0, 300 * MS) for number in range(3)])
    assert measured[0] == measured[1]


def test_background_follows_tables_and_cables() -> None:
    fabric, controller = ready(FORK)
    pin(fabric, controller, BY_B)
    background = FluidBackground(fabric, [flow(1, 8_000_000)], sample_every=100)
    links = {"b": LinkKey("a", "b"), "c": LinkKey("a", "c"), "end": LinkKey("d", "h2")}
    offered = {name: background.load(link).offered_bps for name, link in links.items()}
    wire_bps = 8_000_000 * 0.99 * 1024 / 1000
    assert offered == pytest.approx({"b": wire_bps, "c": 0.0, "end": wire_bps})

    pin(fabric, controller, BY_C)
    assert background.route(1).switches == BY_C
    assert background.load(links["b"]).offered_bps == 0
    assert background.load(links["c"]).offered_bps == pytest.approx(wire_bps)

    fabric.set_link("c", "d", up=False)
    assert background.load(links["c"]).offered_bps == pytest.approx(wire_bps)
    assert background.load(links["end"]).offered_bps == 0
    fabric.set_link("c", "d", up=True, notice_after_ns=1)
    assert background.load(links["end"]).offered_bps == pytest.approx(wire_bps)
    before = background.sent_bytes(links["c"])
    fabric.run_until(fabric.now_ns + 100 * MS)
    assert background.sent_bytes(links["c"]) - before == pytest.approx(8_000_000 * 0.99 / 8 / 10, rel=0.01)


def test_asking_for_routes_changes_nothing_in_switches() -> None:
    fabric, _ = ready(FORK, Watch(sample_every=3))
    state = fabric.switch("a").state
    assert state is not None
    before = {name: bytes(cells.words) for name, cells in state.registers.items()}
    counters = fabric.switch("a").counters()
    FluidBackground(fabric, [flow(number, 1_000_000) for number in range(8)], sample_every=1000)
    assert {name: bytes(cells.words) for name, cells in state.registers.items()} == before
    assert fabric.switch("a").counters() == counters


def test_samples_find_backlog_loss_and_utilisation() -> None:
    fabric, controller = ready(FORK, Watch(sample_every=1))
    pin(fabric, controller, BY_B)
    collector = Collector(FORK, fabric.clock, CollectorSettings(state=StateSettings(sample_every=20)))
    receiver = Receiver()
    fabric.host("h2").on_frame(receiver.receive)

    def report(frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == collector.report_udp_port:
            assert isinstance(datagram.ip.src, IPv4Address)
            collector.receive(datagram.payload, address=datagram.ip.src)

    fabric.host("c1").on_frame(report)
    start_ns = fabric.now_ns
    background = FluidBackground(fabric, [flow(1, 12_000_000)], sample_every=20)
    fabric.run_until(start_ns + 2000 * MS)
    assert background.load(LinkKey("a", "b")).backlog_frames == pytest.approx(51, abs=1)
    measured = receiver.measure(1, start_ns + 1000 * MS, start_ns + 2000 * MS)
    assert measured.loss == pytest.approx(0.2, abs=0.1)  # 12.3 Mbit/s on the wire at 10
    # With every packet sent it is 46.8 ms: the next link is full, too, and telemetry makes packets longer.
    assert measured.delay_mean_ns == pytest.approx(46.8 * MS, rel=0.15)
    snapshot = collector.snapshot()
    link = snapshot.links[LinkKey("a", "b")]
    assert link.utilisation == pytest.approx(0.97, abs=0.05)
    assert link.queue_occupancy_frames == pytest.approx(49, abs=2)
    assert snapshot.links[LinkKey("b", "d")].utilisation == pytest.approx(0.97, abs=0.05)


def test_second_background_is_refused() -> None:
    fabric, _ = ready(FORK)
    FluidBackground(fabric, [flow(1, 1_000_000)], sample_every=10)
    with pytest.raises(FabricError, match="fork: the fabric has a background already"):
        FluidBackground(fabric, [flow(2, 1_000_000)], sample_every=10)
    with pytest.raises(FabricError, match="one packet in 0 cannot be a sample"):
        FluidBackground(fabric, [], sample_every=0)


def test_demo_decides_alike_with_packets_and_fluid() -> None:
    assert differences(*answers("leaf-spine", 1)) == []


def test_unknown_links_and_flows_are_named() -> None:
    fabric, _ = ready(load_topology("leaf-spine"))
    background = FluidBackground(fabric, [], sample_every=10)
    with pytest.raises(FabricError, match="there is no cable from 'h1' to 'h2'"):
        background.load(LinkKey("h1", "h2"))
    with pytest.raises(FabricError, match="the background has no flow 7"):
        background.route(7)
