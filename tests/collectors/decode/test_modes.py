"""MX, XD, intermediate, drop and queue reports through the whole collector: paths, link figures, drops, counts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.counters import Count
from collectors.settings import CollectorSettings, StateSettings
from collectors.values import DelaySource, DropRecord, FlowKey, HopRecord, LinkState, RecordKind
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire import report
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.report import Report, ReportPacket
from dataplane.wire.report_individual import InnerType, ReportType
from dataplane.wire.report_int import IntReport
from tests.collectors.reports import MICRO, Hop, Reporter, build_topology, long_way, short_way

MS = 1_000_000
FLOW = Reporter().flow


class Bench:
    """A collector on a manual clock; keeps its output."""

    def __init__(self, state: StateSettings | None = None, *, synchronised: bool = True) -> None:
        self.clock = VirtualClock()
        self.collector = Collector(
            build_topology(synchronised), self.clock, CollectorSettings(state=state or StateSettings())
        )
        self.records: list[HopRecord] = []
        self.drops: list[DropRecord] = []
        self.collector.subscribe(self.records.extend)
        self.collector.subscribe_drops(self.drops.extend)

    def receive(self, payloads: Iterable[bytes]) -> None:
        for payload in payloads:
            self.collector.receive(payload)

    def link(self, src: str, dst: str) -> LinkState:
        return self.collector.snapshot().links[LinkKey(src, dst)]

    def switches(self, flow: FlowKey = FLOW) -> tuple[str, ...] | None:
        path = self.collector.snapshot().paths.get(flow)
        return None if path is None else path.switches

    def count(self, name: Count) -> int:
        return self.collector.counters[name]


@pytest.mark.parametrize("mx", [False, True])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_postcards_are_joined_by_adjacency_in_any_order(mx: bool, order: tuple[int, ...]) -> None:
    bench = Bench()
    reports = Reporter().postcards(long_way(queued_ns=100 * MICRO, queue=12), mx=mx)
    bench.receive(reports[index] for index in order)
    assert bench.switches() == ("s1", "s2", "s3")
    first, second, last = bench.link("s1", "s2"), bench.link("s2", "s3"), bench.link("s3", "h2")
    assert (first.delay_mean_ns, first.source, first.samples) == (7 * MICRO, DelaySource.STAMPS, 1)
    assert (second.delay_mean_ns, second.source, second.samples) == (107 * MICRO, DelaySource.STAMPS, 1)
    assert (last.delay_mean_ns, last.source, last.samples) == (7 * MICRO, DelaySource.HOP_LATENCY, 1)
    assert second.queue_occupancy_frames == 12.0
    assert bench.count(Count.INCOMPLETE_PACKETS) == 0
    assert {record.kind for record in bench.records} == {RecordKind.MX if mx else RecordKind.XD}


@pytest.mark.parametrize("mx", [False, True])
def test_postcards_of_ipv6_and_of_strangers_have_a_path_too(mx: bool) -> None:
    bench = Bench()
    reporter = Reporter("2001:db8::1", "2001:db8::2")
    bench.receive(reporter.postcards(long_way(), mx=mx))
    assert bench.switches(reporter.flow) == ("s1", "s2", "s3")


def test_only_mx_reports_count_a_flows_bytes_and_once_a_packet() -> None:
    for mx, counted in ((False, 0), (True, 20)):
        bench = Bench()
        reporter = Reporter()
        for number in range(20):
            bench.clock.advance_to(number * 100 * MS)
            bench.receive(reporter.postcards(long_way(number * 100 * MS), mx=mx, payload=b"%08d" % number))
        rate = bench.collector.snapshot().paths[FLOW].rate_bps
        assert bool(rate) == bool(counted)
        if rate:
            assert rate == pytest.approx(8 * (36 + 24 + 14) * 10, rel=0.2)  # IP packet and framing, ten a second


def test_xd_reports_of_different_packets_tell_the_flows_path() -> None:
    """A change filter lets each node report another packet."""
    bench = Bench()
    reporter = Reporter()
    packets = [reporter.postcards(long_way(), mx=False, payload=b"packet %d" % n) for n in range(3)]
    bench.receive([packets[0][1], packets[1][2]])
    assert bench.switches() is None
    bench.receive([packets[2][0]])
    assert bench.switches() == ("s1", "s2", "s3")


def test_a_flow_that_moves_has_its_new_path_once_its_nodes_agree() -> None:
    bench = Bench()
    reporter = Reporter()
    bench.receive(reporter.postcards(long_way(), mx=False, payload=b"1"))
    moved = reporter.postcards(short_way(50 * MICRO), mx=False, payload=b"2")
    bench.receive(moved[:1])
    assert bench.switches() == ("s1", "s2", "s3")  # s3 has not been entered from s1 yet
    bench.receive(moved[1:])
    assert bench.switches() == ("s1", "s3")


def test_what_a_node_said_long_ago_is_no_part_of_a_flows_path() -> None:
    bench = Bench(StateSettings(forget_path_after_ns=100 * MS))
    packets = [Reporter().postcards(long_way(), mx=False, payload=b"packet %d" % n) for n in range(3)]
    bench.receive([packets[0][0], packets[1][1]])
    bench.clock.advance_to(101 * MS)
    bench.receive([packets[2][2]])
    assert bench.switches() is None


def test_lost_postcard_leaves_hop_latency_for_its_neighbours() -> None:
    bench = Bench(StateSettings(longest_wait_ns=MS))
    reporter = Reporter()
    reports = reporter.postcards(long_way(queued_ns=MICRO), mx=True)
    bench.receive([reports[0], reports[2]])
    assert bench.link("s1", "s2").samples == 0  # waits for the stamp of s2
    assert bench.switches() is None
    bench.clock.advance_to(MS + 1)
    bench.receive(reporter.postcards(short_way(MS), mx=True, payload=b"other"))
    link = bench.link("s1", "s2")
    assert (link.samples, link.delay_mean_ns, link.source) == (1, 7 * MICRO, DelaySource.HOP_LATENCY)
    assert bench.count(Count.INCOMPLETE_PACKETS) == 1


def test_lost_next_hop_report_leaves_hop_latency() -> None:
    bench = Bench(StateSettings(longest_wait_ns=MS))
    reporter = Reporter()
    bench.receive(reporter.hop_by_hop(long_way())[:1])
    assert bench.link("s1", "s2").samples == 0
    bench.clock.advance_to(MS + 1)
    bench.receive(reporter.hop_by_hop(short_way(MS), payload=b"other"))
    assert bench.link("s1", "s2").source is DelaySource.HOP_LATENCY
    assert bench.count(Count.INCOMPLETE_PACKETS) == 1


def test_lookalike_packet_replaces_an_unfinished_one() -> None:
    bench = Bench()
    reporter = Reporter()
    one, two = (reporter.postcards(long_way(start), mx=True) for start in (0, 50 * MICRO))
    bench.receive([one[0], *two])
    assert bench.count(Count.INCOMPLETE_PACKETS) == 1
    assert bench.switches() == ("s1", "s2", "s3")


def test_postcards_without_interfaces_have_neither_link_nor_path() -> None:
    bench = Bench()
    bench.receive(Reporter(bits=0x3000).postcards(long_way(), mx=True))
    assert bench.switches() is None
    assert bench.count(Count.UNKNOWN_PORT) == 3


@pytest.mark.parametrize("synchronised", [False, True])
def test_an_intermediate_report_and_the_sinks_are_one_path(synchronised: bool) -> None:
    bench = Bench(synchronised=synchronised)
    reporter = Reporter()
    hops = long_way(queued_ns=10 * MICRO)
    for number, order in enumerate([(0, 1), (1, 0), (0, 1)]):
        reports = reporter.intermediate(hops[:2], hops[2:])
        bench.receive(reports[index] for index in order)
        assert bench.switches() == ("s1", "s2", "s3")
        assert bench.link("s1", "s2").samples == number + 1
        assert bench.link("s2", "s3").delay_mean_ns == 17 * MICRO
    assert bench.count(Count.INCOMPLETE_PACKETS) == 0


def test_midway_stack_is_no_path_until_the_flow_is_split() -> None:
    bench = Bench()
    hops = long_way()
    bench.receive(Reporter().intermediate(hops[:2], hops[2:])[1:])
    assert bench.switches() is None
    assert bench.count(Count.NOT_ADJACENT) == 1


def test_drop_report_gives_a_drop_and_records_of_earlier_hops() -> None:
    bench = Bench()
    bench.receive([Reporter().dropped(long_way(), DropReason.QUEUE_FULL)])
    assert bench.drops == [
        DropRecord(0, 13, 0, 13, 1, 2, queue_id=3, reason=9, flow=FLOW, timestamp_ns=14 * MICRO, tracked=True),
    ]
    assert [(record.node_id, record.hop_count) for record in bench.records] == [(11, None), (12, None)]
    assert bench.switches() is None
    assert bench.link("s1", "s2").samples == bench.link("s2", "s3").samples == 1
    assert bench.link("s3", "h2").samples == 0
    assert bench.count(Count.PACKET_DROPPED) == 1


def test_drop_report_of_an_untracked_flow_gives_only_the_drop() -> None:
    bench = Bench()
    bench.receive([Reporter().dropped(long_way(), DropReason.NO_ROUTE, tracked=False)])
    assert ([drop.reason for drop in bench.drops], bench.records) == ([DropReason.NO_ROUTE], [])


def test_a_probe_that_ends_at_its_sink_is_a_whole_path_besides() -> None:
    bench = Bench()
    bench.receive([Reporter().dropped(long_way(), DropReason.INT_DISCARD)])
    assert [drop.reason for drop in bench.drops] == [DropReason.INT_DISCARD]
    assert [record.node_id for record in bench.records] == [11, 12, 13]
    assert bench.switches() == ("s1", "s2", "s3")


@pytest.mark.parametrize(
    ("inner_type", "inner", "flow"),
    [
        (InnerType.IPV4, bytes(16), None),
        (InnerType.ETHERNET, bytes.fromhex("020000000001020000000002") + b"\x88\xcc" + bytes(2), None),
        (InnerType.NONE, b"", None),
        (InnerType.IPV4, Reporter().plain(b"", b"no shim!"), FLOW),  # the DSCP says INT, and lies
    ],
)
def test_a_dropped_packet_may_be_malformed(inner_type: InnerType, inner: bytes, flow: FlowKey | None) -> None:
    bench = Bench()
    reporter = Reporter()
    main = IntReport(1, HopMetadata(drop_reason=DropReason.INT_AT_EDGE))
    individual = Report(ReportType.INT, inner_type, main, inner, dropped=True)
    bench.receive([ReportPacket(reporter.group(12), (individual,)).encode()])
    assert [(drop.flow, drop.reason, drop.queue_id) for drop in bench.drops] == [(flow, DropReason.INT_AT_EDGE, None)]
    assert (bench.records, bench.count(Count.MALFORMED)) == ([], 0)


def test_a_drop_without_a_reason_is_unknown() -> None:
    bench = Bench()
    individual = Report(ReportType.INNER_ONLY, InnerType.IPV4, None, Reporter().plain(), dropped=True)
    bench.receive([ReportPacket(Reporter().group(12), (individual,)).encode()])
    assert [(drop.reason, drop.ingress_port, drop.flow) for drop in bench.drops] == [(DropReason.UNKNOWN, None, FLOW)]


def test_drops_of_reports_are_about_reports() -> None:
    bench = Bench()
    bench.receive([Reporter(dst_port=32766).dropped(long_way(), DropReason.QUEUE_FULL)])
    assert (bench.drops, bench.count(Count.PACKET_DROPPED)) == ([], 0)
    assert bench.count(Count.ABOUT_REPORTS) == 2  # the drop, and the hops before it


def test_congested_queue_report_gives_no_path_or_delay() -> None:
    bench = Bench()
    bench.receive([Reporter().congested(Hop(12, 0, 900 * MICRO, 1, 2, queue=88, tx_bytes=4_096_000))])
    link = bench.link("s2", "s3")
    assert (link.samples, link.queue_occupancy_frames, link.utilisation) == (0, 88.0, 0.5)
    assert bench.switches() is None
    assert [record.kind for record in bench.records] == [RecordKind.QUEUE]


def test_tracked_flow_in_a_congested_queue_is_a_postcard() -> None:
    bench = Bench()
    bench.receive([Reporter().congested(Hop(13, 0, 900 * MICRO, 1, 2, queue=88), tracked=True)])
    link = bench.link("s3", "h2")
    assert (link.samples, link.delay_mean_ns) == (1, 905 * MICRO)
    assert [record.kind for record in bench.records] == [RecordKind.XD]


def test_a_group_may_hold_reports_of_every_kind() -> None:
    reporter = Reporter()
    payloads = [
        reporter.stacked(long_way()),
        reporter.postcards(long_way(), mx=False)[2],
        reporter.dropped(long_way(), DropReason.TTL_EXPIRED),
        reporter.congested(long_way()[2]),
    ]
    together = tuple(individual for payload in payloads for individual in report.decode(payload).reports)
    bench = Bench()
    bench.receive([ReportPacket(reporter.group(13), together).encode()])
    assert [record.kind for record in bench.records] == [
        *[RecordKind.STACK] * 3,
        RecordKind.XD,
        *[RecordKind.STACK] * 2,
        RecordKind.QUEUE,
    ]
    assert len(bench.drops) == 1
    assert bench.switches() == ("s1", "s2", "s3")
    assert bench.link("s1", "s2").samples == 2  # the sink's stack, and that of the packet that was dropped later


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 200), st.integers(0, 255)), max_size=15))
def test_damaged_reports_are_counted_and_never_raise(damages: list[tuple[int, int, int]]) -> None:
    reporter = Reporter()
    hops = long_way()
    good = [
        *reporter.postcards(hops, mx=True)[:2],
        reporter.postcards(hops, mx=False)[2],
        *reporter.intermediate(hops[:2], hops[2:]),
        reporter.dropped(hops, DropReason.QUEUE_FULL),
        reporter.congested(hops[1]),
    ]
    bench = Bench()
    for which, at, flip in damages:
        bad = bytearray(good[which])
        bad[at % len(bad)] ^= flip
        bench.receive([bytes(bad)])
    assert bench.count(Count.REPORTS) == len(damages)
    bench.collector.snapshot()
