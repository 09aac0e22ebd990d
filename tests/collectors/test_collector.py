"""The collector's core from payload to snapshot: every mode, accounting, refusals, and no payload that kills it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.counters import Count
from collectors.settings import CollectorSettings, Core
from collectors.values import DelaySource, HopRecord, ReporterState
from dataplane.clock import VirtualClock
from dataplane.config import loads
from dataplane.errors import ConfigError
from dataplane.topology.values import LinkKey
from dataplane.wire import report
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.report import ReportPacket
from dataplane.wire.report_group import ReportGroup
from dataplane.wire.report_individual import InnerType, ReportType
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way, short_way
from tests.dataplane.wire.golden_traces import IFA_UDP


class Bench:
    """A collector of the core that a test runs over."""

    core: ClassVar[Core] = Core.REFERENCE

    def __init__(self, settings: CollectorSettings | None = None) -> None:
        self.clock = VirtualClock(1000)
        chosen = msgspec.structs.replace(settings or CollectorSettings(), core=self.core)
        self.collector = Collector(build_topology(), self.clock, chosen)
        self.batches: list[tuple[HopRecord, ...]] = []
        self.unsubscribe = self.collector.subscribe(self.batches.append)


@pytest.fixture(autouse=True, params=list(Core))
def every_core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "core", request.param)


def test_a_stacked_report_becomes_records_in_travelling_order() -> None:
    bench, reporter = Bench(), Reporter()
    bench.collector.receive(reporter.stacked(long_way(queued_ns=MICRO, queue=3, tx_bytes=99), sequence=7))
    (records,) = bench.batches
    assert [record.hop_index for record in records] == [0, 1, 2]
    second = records[1]
    assert second == HopRecord(
        received_ns=1000,
        flow=reporter.flow,
        reporter_id=13,
        sequence=7,
        hop_index=1,
        hop_count=3,
        node_id=12,
        ingress_port=1,
        egress_port=2,
        hop_latency_ns=3 * MICRO,
        queue_id=0,
        queue_occupancy_frames=3,
        ingress_timestamp_ns=7 * MICRO,
        egress_timestamp_ns=10 * MICRO,
        tx_bytes_per_window=99,
        packet_id=second.packet_id,
    )


def test_hop_by_hop_reports_are_numbered_from_the_source() -> None:
    bench = Bench()
    for payload in Reporter().hop_by_hop(long_way()):
        bench.collector.receive(payload)
    assert [(batch[0].hop_index, batch[0].hop_count) for batch in bench.batches] == [(0, None), (1, None), (2, 3)]
    assert next(iter(bench.collector.snapshot().paths.values())).switches == ("s1", "s2", "s3")


def test_unknown_sources_are_indexed_by_the_highest_hop_count() -> None:
    bench = Bench()
    reporter = Reporter("192.0.2.1")
    first, second, third = reporter.hop_by_hop(long_way(), payload=b"one")
    for payload in (second, first, third, *reporter.hop_by_hop(long_way(), payload=b"two")):
        bench.collector.receive(payload)
    indices = [batch[0].hop_index for batch in bench.batches]
    assert indices == [0, 0, 2, 0, 1, 2]


def test_both_modes_say_the_same_of_the_same_packet() -> None:
    stacked, single = Bench(), Bench()
    hops = long_way(queued_ns=40 * MICRO, queue=4, tx_bytes=1 << 20)
    stacked.collector.receive(Reporter().stacked(hops))
    for payload in Reporter().hop_by_hop(hops):
        single.collector.receive(payload)
    assert stacked.collector.snapshot().links == single.collector.snapshot().links
    assert stacked.collector.snapshot().paths == single.collector.snapshot().paths


def test_level_2_interfaces_stand_in_for_level_1() -> None:
    bench, reporter = Bench(), Reporter()
    individual = report.decode(reporter.stacked(short_way())).reports[0]
    assert individual.main is not None
    level2 = HopMetadata(level2_ingress_interface=3, level2_egress_interface=2)
    payload = ReportPacket(
        reporter.group(13), (replace(individual, main=replace(individual.main, bits=0x0200, metadata=level2)),)
    )
    bench.collector.receive(payload.encode())
    assert (bench.batches[0][-1].ingress_port, bench.batches[0][-1].egress_port) == (3, 2)


def test_a_repeated_report_counts_once() -> None:
    bench, reporter = Bench(), Reporter()
    payload = reporter.stacked(long_way())
    bench.collector.receive(payload)
    bench.collector.receive(payload)
    assert len(bench.batches) == 1
    assert bench.collector.counters[Count.REPEATED] == 1
    assert bench.collector.snapshot().links[LinkKey("s1", "s2")].samples == 1


def test_gaps_are_lost_reports_of_their_node() -> None:
    bench, reporter = Bench(), Reporter()
    for sequence in (0, 1, 5, 3):
        bench.collector.receive(reporter.stacked(long_way(), sequence=sequence))
    assert bench.collector.snapshot().reporters == {(13, 0): ReporterState(13, 0, 4, 2, 1, 0, 0)}


def test_reports_about_reports_are_counted_and_ignored() -> None:
    bench = Bench()
    bench.collector.receive(Reporter(dst_port=32766).stacked(long_way()))
    assert not bench.batches
    assert bench.collector.counters[Count.ABOUT_REPORTS] == 1
    other = Bench(CollectorSettings(report_udp_port=6001))
    other.collector.receive(Reporter(dst_port=6001).stacked(long_way()))
    assert other.collector.counters[Count.ABOUT_REPORTS] == 1


def test_a_malformed_report_is_counted_by_header_and_explained() -> None:
    bench = Bench()
    bench.collector.receive(b"\x10" + bytes(20), ("10.0.0.9", 5))
    status = bench.collector.status()
    assert status.counters == {"reports": 1, "malformed": 1, "malformed report group": 1}
    assert status.last_problem == "report from ('10.0.0.9', 5): report group at byte 0: version is 1, not 2"
    assert not bench.collector.snapshot().reporters


def test_hops_without_a_node_id_are_counted_and_keep_their_place() -> None:
    bench = Bench()
    bench.collector.receive(Reporter(bits=0x7D00).stacked(long_way()))
    assert bench.collector.counters[Count.NO_NODE_ID] == 2
    assert [record.hop_index for record in bench.batches[0]] == [2]


def test_an_endless_time_stamp_is_none() -> None:
    bench, reporter = Bench(), Reporter()
    hops = short_way()
    far = replace(hops[1], arrived_ns=1 << 63, left_ns=(1 << 63) + 5)
    bench.collector.receive(reporter.stacked([hops[0], far]))
    assert bench.batches[0][1].ingress_timestamp_ns is None


def test_who_unsubscribes_hears_no_more() -> None:
    bench = Bench()
    bench.unsubscribe()
    bench.collector.receive(Reporter().stacked(long_way()))
    assert not bench.batches


@given(st.binary(max_size=100))
def test_no_payload_raises(junk: bytes) -> None:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(junk)
    collector.snapshot()
    assert collector.counters[Count.REPORTS] == 1


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 150), st.integers(0, 255)), min_size=1, max_size=12),
)
def test_damaged_reports_among_good_ones_never_raise(damages: list[tuple[int, int, int]]) -> None:
    collector = Collector(build_topology(), VirtualClock())
    reporter = Reporter()
    for which, at, flip in damages:
        good = [reporter.stacked(long_way()), *reporter.hop_by_hop(long_way())][which]
        bad = bytearray(good)
        bad[at % len(bad)] ^= flip
        collector.receive(bytes(bad))
        collector.receive(good)
    snapshot = collector.snapshot()
    assert collector.counters[Count.REPORTS] == 2 * len(damages)
    assert all(link.available_bps >= 0 for link in snapshot.links.values())


@pytest.mark.parametrize("key", ["int_dscp", "report_udp_port"])
def test_settings_out_of_range_are_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        loads(f"{key}: 70000\n", CollectorSettings)
    with pytest.raises(ConfigError, match="unknown key"):
        loads("intdscp: 1\n", CollectorSettings)


def test_stacks_of_ifa_measure_links_like_those_of_int() -> None:
    bench = Bench(CollectorSettings(ifa_protocol=253))
    packet = IFA_UDP.replace(b"\x10\0\x02\x40", b"\x10\0\x0c\x40").replace(b"\x10\0\x01\x41", b"\x10\0\x0b\x41")
    inner = report.Report(ReportType.INNER_ONLY, InnerType.IPV4, None, packet + bytes(-len(packet) % 4), tracked=True)
    bench.collector.receive(ReportPacket(ReportGroup(hw_id=0, sequence=0, node_id=12), (inner,)).encode())
    key = LinkKey("s1", "s2")
    link = bench.collector.snapshot().links[key]
    propagation_ns = build_topology().directed_links[key].delay_ns
    assert (link.source, link.delay_mean_ns) == (DelaySource.HOP_LATENCY, 900 + propagation_ns)
