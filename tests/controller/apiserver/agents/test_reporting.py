"""Reports through a whole fabric in virtual time: no reports about reports, and settings that change under traffic."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from controller.common.errors import ControllerError
from controller.network.reconcile import diff
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.queue_watch import QueueWatch
from controller.network.tables.telemetry.reporting import NO_REPORTING, Reporting
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.values import CollectorAddress, Endpoint, HostNode, Link, SwitchNode, Topology
from dataplane.wire import report
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.packet import decode_udp_frame
from dataplane.wire.report import ReportPacket

MS = 1_000_000
EVERYTHING = Reporting(drops=(DropWatch(quota=0),), queues=(QueueWatch(occupancy_frames=2, quota=0xFFFF),))


def line() -> Topology:
    """Return three switches in a row with a host each; the collector is at the far end, behind two slow links."""
    switches = tuple(SwitchNode(f"s{number}", number) for number in (1, 2, 3))
    hosts = tuple(
        HostNode(name, mac=0x020000000000 | number << 16 | 1, ipv4=IPv4Address(f"10.0.{number}.1"))
        for number, name in enumerate(("h1", "h2", "hc"), start=1)
    )
    access = tuple(
        Link(Endpoint(host, 0), Endpoint(f"s{number}", 1), 100_000_000, 100, 64)
        for number, host in enumerate(("h1", "h2", "hc"), start=1)
    )
    slow = tuple(
        Link(Endpoint(a, 2 if a == "s1" else 3), Endpoint(b, 2), 5_000_000, 1000, 8)
        for a, b in (("s1", "s2"), ("s2", "s3"))
    )
    return Topology("line", switches, hosts, slow + access, CollectorAddress("hc", 32766))


class Bench:
    """The fabric, and every report packet that reaches the collector."""

    def __init__(self, reporting: Reporting) -> None:
        self.topology = line()
        self.fabric = VirtualFabric(self.topology)
        self.controller = VirtualController.over(self.fabric, watches=(), reporting=reporting)
        self.controller.start()
        self.packets: list[ReportPacket] = []
        self.fabric.host("hc").on_frame(self._take)

    def _take(self, frame: bytes, now_ns: int) -> None:
        udp = decode_udp_frame(frame)
        if udp is not None and udp.dst_port == 32766:
            self.packets.append(report.decode(udp.payload))

    def flood(self, number: int, src: str, dst: str, *, stop_ns: int) -> None:
        flow = flow_between(self.topology, number, src, dst, rate_bps=20_000_000, stop_ns=stop_ns)
        self.fabric.start_flow(src, flow)


def test_dropped_or_queued_reports_cause_no_reports() -> None:
    """Data of both hosts fills both links on the reports' path, so most reports are lost, too."""
    bench = Bench(EVERYTHING)
    bench.flood(1, "h1", "hc", stop_ns=100 * MS)
    bench.flood(2, "h2", "hc", stop_ns=100 * MS)
    bench.fabric.run_until(1_000 * MS)
    refused = [
        port.drops.get("queue_full", 0)
        for name in ("s1", "s2")
        for port in bench.fabric.switch(name).counters().ports.values()
    ]
    assert sum(refused) > 100
    # Reports of s1 pass the congested queue of s2.
    assert {packet.group.node_id for packet in bench.packets} >= {1, 2}
    to_collector = IPv4Address("10.0.3.1").packed
    for packet in bench.packets:
        for sent in packet.reports:
            assert sent.inner[16:20] == to_collector, "data, all of it"
            assert sent.inner[22:24] != (32766).to_bytes(2, "big"), "a report about a report"


def test_reporting_changes_while_traffic_flows() -> None:
    bench = Bench(NO_REPORTING)
    # Opposite to the reports, whose path is free.
    bench.flood(1, "hc", "h1", stop_ns=300 * MS)
    bench.fabric.run_until(100 * MS)
    assert bench.packets == []
    bench.controller.configure(watches=(), reporting=Reporting(drops=(DropWatch(reasons=("queue_full",), quota=0),)))
    bench.fabric.run_until(200 * MS)
    reports = [report for packet in bench.packets for report in packet.reports]
    assert reports
    assert {report.main.metadata.drop_reason for report in reports if report.main is not None} == {
        DropReason.QUEUE_FULL
    }
    bench.controller.configure(watches=(), reporting=NO_REPORTING)
    bench.fabric.run_until(250 * MS)
    bench.packets.clear()
    bench.fabric.run_until(400 * MS)
    assert bench.packets == []


def test_reporting_that_does_not_fit_changes_nothing() -> None:
    bench = Bench(EVERYTHING)
    coordinator, telemetry = bench.controller.coordinator, bench.controller.features.telemetry
    base = telemetry.base
    wrong = Reporting(queues=(QueueWatch(switch="s9", latency_ns=1),))
    with pytest.raises(ControllerError, match="no switch 's9'"):
        bench.controller.configure(watches=(), reporting=wrong)
    assert telemetry.base is base
    assert diff(coordinator.wanted("s1"), coordinator.held("s1")) == []
