"""Every INT mode in virtual time, from the P4 program's reports to the collector's state; reports lost and repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.settings import CollectorSettings
from collectors.values import DelaySource, DropRecord, HopRecord, LinkState, RecordKind
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.int_domain import DEFAULT_DOMAIN, IntDomain
from controller.network.tables.telemetry.int_watch import Mode, Watch
from controller.network.tables.telemetry.queue_watch import QueueWatch
from controller.network.tables.telemetry.reporting import NO_REPORTING, FlowFilter, Reporting
from controller.network.virtual import VirtualController
from dataplane.clock import VirtualClock
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.packet import decode_udp_frame

MS = 1_000_000
LINE = """
millrace: 1
name: line
collector: {host: hc}
synchronised_clocks: true
defaults:
  link: {rate: 10 Mbit/s, delay: 2 ms, queue_frames: 64}
  access: {rate: 100 Mbit/s, delay: 10 us, queue_frames: 64}
switches: [{name: s1}, {name: s2}, {name: s3}, {name: s4}]
hosts: [{name: ha, switch: s1}, {name: hb, switch: s4}, {name: hc, switch: s1}]
links: [{a: s1, b: s2}, {a: s2, b: s3}, {a: s3, b: s4}]
"""
KINDS: dict[Mode, RecordKind] = {
    "md": RecordKind.STACK,
    "hop-by-hop": RecordKind.HOP_BY_HOP,
    "mx": RecordKind.MX,
    "xd": RecordKind.XD,
}


@dataclass
class Run:
    """Results of a run: the collector and its output."""

    collector: Collector
    reports: list[bytes] = field(default_factory=list)
    records: list[HopRecord] = field(default_factory=list)
    drops: list[DropRecord] = field(default_factory=list)

    def link(self, src: str, dst: str) -> LinkState:
        return self.collector.snapshot().links[LinkKey(src, dst)]

    def path(self) -> tuple[str, ...]:
        (path,) = self.collector.snapshot().paths.values()
        return path.switches


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Topology:
    """Return four switches in a row."""
    path = tmp_path_factory.mktemp("line") / "line.yaml"
    path.write_text(LINE)
    return load_topology(str(path))


def run(
    topology: Topology,
    watch: Watch,
    *,
    rate_bps: int = 2_000_000,
    stop_ns: int = 200 * MS,
    ip_version: int = 4,
    reporting: Reporting = NO_REPORTING,
    domain: IntDomain = DEFAULT_DOMAIN,
) -> Run:
    """Let ha send to hb for a while."""
    fabric = VirtualFabric(topology)
    VirtualController.over(fabric, watches=(watch,), reporting=reporting, domain=domain).start()
    result = Run(Collector(topology, fabric.clock, settings_of(domain)))
    result.collector.subscribe(result.records.extend)
    result.collector.subscribe_drops(result.drops.extend)

    def receive(frame: bytes, _: int) -> None:
        datagram = decode_udp_frame(frame)
        if datagram is not None and datagram.dst_port == result.collector.report_udp_port:
            result.reports.append(datagram.payload)
            result.collector.receive(datagram.payload)

    fabric.host("hc").on_frame(receive)
    flow = flow_between(topology, 1, "ha", "hb", rate_bps, stop_ns=stop_ns, ip_version=ip_version)
    fabric.start_flow("ha", flow)
    fabric.run_until(stop_ns + 100 * MS)
    return result


def settings_of(domain: IntDomain) -> CollectorSettings:
    """Return the collector's settings for a domain's marks."""
    marking = domain.marking()
    return CollectorSettings(
        int_dscp=marking.dscp,
        int_dscp_mask=marking.dscp_mask,
        int_udp_port=marking.udp_port,
        int_probe_marker=marking.probe_marker,
    )


@pytest.fixture(scope="module")
def plain(line: Topology) -> Callable[[Mode], Run]:
    """Return what runs a mode with nothing else set, once."""
    return cache(lambda mode: run(line, Watch(mode=mode)))


def replay(topology: Topology, reports: Sequence[bytes]) -> Run:
    """Let a collector receive reports all at one time."""
    run = Run(Collector(topology, VirtualClock()))
    for payload in reports:
        run.collector.receive(payload)
    return run


@pytest.mark.parametrize(("mode", "ip_version"), [*((mode, 4) for mode in KINDS), ("md", 6), ("xd", 6)])
def test_every_mode_tells_the_path_and_the_same_delays(
    line: Topology, plain: Callable[[Mode], Run], mode: Mode, ip_version: int
) -> None:
    result = plain(mode) if ip_version == 4 else run(line, Watch(mode=mode), ip_version=ip_version)
    assert result.path() == ("s1", "s2", "s3", "s4")
    assert {record.kind for record in result.records} == {KINDS[mode]}
    for pair in (("s1", "s2"), ("s2", "s3"), ("s3", "s4")):
        link = result.link(*pair)
        # 2 ms of cable and what a frame of 1,000 to 1,200 bytes and its framing takes at 10 Mbit/s.
        assert 2_800_000 <= link.delay_p50_ns <= 3_000_000
        assert link.source is DelaySource.STAMPS
        assert link.samples >= 40
        assert link.utilisation == pytest.approx(0.2, abs=0.1)  # the first of its windows began before the flow
    counted = result.collector.status().counters
    assert {Count.MALFORMED, Count.ABOUT_REPORTS, Count.NOT_ADJACENT, Count.UNKNOWN_PORT} & set(counted) == set()
    # Packets that were still on their way when time ended, or whose reports were.
    assert counted.get(Count.INCOMPLETE_PACKETS, 0) == 0
    assert all(reporter.lost == 0 for reporter in result.collector.snapshot().reporters.values())


DOMAINS = {
    "a bit of the DSCP": IntDomain(dscp=0x20, dscp_mask=0x20),
    "the original port": IntDomain(udp_port=5599),
    "a new UDP header": IntDomain(udp_port=5599, always_new_udp=True),
    "a probe marker": IntDomain(probe_marker=0xFEED_FACE_0BAD_CAFE),
}


@pytest.mark.parametrize(("mode", "domain"), list(zip(["mx", "md", "mx", "hop-by-hop"], DOMAINS.values(), strict=True)))
def test_every_mark_tells_the_hosts_flow(line: Topology, mode: Mode, domain: IntDomain) -> None:
    result = run(line, Watch(mode=mode), domain=domain, stop_ns=60 * MS)
    assert result.path() == ("s1", "s2", "s3", "s4")
    (flow,) = {record.flow for record in result.records}
    sent = flow_between(line, 1, "ha", "hb", 1)
    assert flow.dst_port == sent.dst_port
    assert result.link("s3", "s4").source is DelaySource.STAMPS


def test_stack_stripped_at_the_mtu_is_still_one_path(line: Topology) -> None:
    # 986 bytes of IP, 16 of INT headers and 32 a hop: the third switch has no room for its words.
    domain = IntDomain(mtu_bytes=986 + 16 + 2 * 32 + 8, strip_at_mtu=True)
    result = run(line, Watch(), domain=domain)
    kinds = {record.node_id: record.kind for record in result.records}
    assert kinds == {
        line.switch["s1"].node_id: RecordKind.INTERMEDIATE,
        line.switch["s2"].node_id: RecordKind.INTERMEDIATE,
        line.switch["s3"].node_id: RecordKind.INTERMEDIATE,
        line.switch["s4"].node_id: RecordKind.STACK,
    }
    assert result.path() == ("s1", "s2", "s3", "s4")
    for pair in (("s1", "s2"), ("s2", "s3"), ("s3", "s4")):
        assert result.link(*pair).samples >= 40
        assert result.link(*pair).source is DelaySource.STAMPS


def test_what_travels_makes_links_slower_but_only_by_its_bytes(plain: Callable[[Mode], Run]) -> None:
    """MD grows by a hop's words at each switch; MX and hop by hop carry their headers alone, XD nothing."""
    last = {mode: plain(mode).link("s3", "s4").delay_p50_ns for mode in KINDS}
    assert last["xd"] < last["mx"] <= last["hop-by-hop"] < last["md"]


@pytest.mark.parametrize("mode", ["hop-by-hop", "mx", "xd"])
def test_reordered_and_repeated_reports_give_the_same_path(
    line: Topology, plain: Callable[[Mode], Run], mode: Mode
) -> None:
    reports = plain(mode).reports
    shuffled = [payload for start in range(0, len(reports), 16) for payload in reversed(reports[start : start + 16])]
    result = replay(line, shuffled + shuffled[-8:])
    assert result.path() == ("s1", "s2", "s3", "s4")
    reporters = result.collector.snapshot().reporters.values()
    assert sum(reporter.duplicate for reporter in reporters) == 8
    assert sum(reporter.lost for reporter in reporters) == 0
    assert result.collector.counters[Count.REPEATED] == 8


@pytest.mark.parametrize("mode", KINDS)
def test_reports_lost_on_purpose_are_counted_exactly(line: Topology, plain: Callable[[Mode], Run], mode: Mode) -> None:
    by_node: dict[int, list[bytes]] = {}
    for payload in plain(mode).reports:
        by_node.setdefault(int.from_bytes(payload[4:8], "big"), []).append(payload)
    # The first and the last of a reporter are no gap.
    lost = {node: set(reports[3:-1:7]) for node, reports in by_node.items()}
    kept = [payload for payload in plain(mode).reports if not any(payload in gone for gone in lost.values())]
    result = replay(line, kept)
    reporters = result.collector.snapshot().reporters
    assert {node: state.lost for (node, _), state in reporters.items()} == {n: len(gone) for n, gone in lost.items()}
    assert min(len(gone) for gone in lost.values()) > 3
    assert result.path() == ("s1", "s2", "s3", "s4")


def test_xd_with_a_change_filter_still_tells_the_path(line: Topology, plain: Callable[[Mode], Run]) -> None:
    reporting = Reporting(flows=(FlowFilter(latency_quantum_ns=5 * MS, refresh_ns=100 * MS),))
    result = run(line, Watch(mode="xd"), reporting=reporting)
    assert len(result.reports) < len(plain("xd").reports) / 5
    assert result.path() == ("s1", "s2", "s3", "s4")


def test_xd_samples_are_whole_paths(line: Topology) -> None:
    result = run(line, Watch(mode="xd", sample_every=8), rate_bps=4_000_000)
    nodes = {record.packet_id: set[int]() for record in result.records}
    for record in result.records:
        nodes[record.packet_id].add(record.node_id)
    # About one in eight of 100 packets.
    assert 5 <= len(nodes) <= 25
    assert all(seen == {1, 2, 3, 4} for seen in nodes.values())
    assert result.path() == ("s1", "s2", "s3", "s4")


def test_drops_by_a_full_queue_and_a_congested_queue_are_told(line: Topology) -> None:
    reporting = Reporting(drops=(DropWatch(quota=0),), queues=(QueueWatch(switch="s1", occupancy_frames=32, quota=10),))
    result = run(line, Watch(mode="mx", sample_every=10), rate_bps=14_000_000, reporting=reporting)
    queue = [record for record in result.records if record.kind is RecordKind.QUEUE]
    assert queue
    assert {record.node_id for record in queue} == {line.switch["s1"].node_id}
    assert all((record.queue_occupancy_frames or 0) >= 32 for record in queue)
    port = line.directed_links[LinkKey("s1", "s2")].tail.port
    full = [drop for drop in result.drops if drop.reason == DropReason.QUEUE_FULL]
    assert {(drop.node_id, drop.egress_port) for drop in full} == {(line.switch["s1"].node_id, port)}
    assert {drop.flow.dst_port for drop in full if drop.flow} == {queue[0].flow.dst_port}
    assert result.path() == ("s1", "s2", "s3", "s4")


def test_probes_that_end_at_the_sink_are_paths(line: Topology) -> None:
    result = run(line, Watch(discard=True), reporting=Reporting(drops=(DropWatch(),)))
    assert result.path() == ("s1", "s2", "s3", "s4")
    assert {drop.reason for drop in result.drops} <= {DropReason.INT_DISCARD}
