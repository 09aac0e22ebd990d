"""Whole batches through the native core against the reference: the same snapshot and the same counts, always."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.counters import Count, Counters
from collectors.decode.stitch import SeenPath
from collectors.native.accumulator import NativeStore
from collectors.settings import CollectorSettings, Core, StateSettings
from collectors.values import DropRecord, FlowKey, HopRecord
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire import report
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.report import ReportPacket
from dataplane.wire.report_group import ReportGroup
from tests.collectors.cores import receive_together
from tests.collectors.reports import ALL, MICRO, Hop, Reporter, build_topology, long_way, short_way

MS = 1_000_000


class Pair:
    """A reference collector and a native one, on one clock."""

    def __init__(self, given_settings: CollectorSettings | None = None, *, synchronised: bool = True) -> None:
        chosen = given_settings or CollectorSettings()
        self.clock = VirtualClock(1000)
        self.reference, self.native = (
            Collector(build_topology(synchronised), self.clock, msgspec.structs.replace(chosen, core=core))
            for core in (Core.REFERENCE, Core.NATIVE)
        )

    def receive(self, payloads: list[bytes]) -> None:
        """Give both the same, and compare all that they say."""
        for payload in payloads:
            self.reference.receive(payload)
        receive_together(self.native, payloads)
        self.compare()

    def compare(self) -> None:
        mine, theirs = self.native.snapshot(), self.reference.snapshot()
        assert mine.reporters == theirs.reporters
        assert mine.links == theirs.links
        assert mine.paths == theirs.paths
        assert mine.jobs == theirs.jobs
        assert self.native.status() == self.reference.status()
        assert self.native.delays() == self.reference.delays()
        assert self.native.take_signals() == self.reference.take_signals()


def stacks(count: int, reporter: Reporter | None = None) -> list[bytes]:
    reporter = reporter or Reporter()
    either = (long_way, short_way)
    return [
        reporter.stacked(
            long_way(n * 10 * MICRO, queued_ns=(n * 37 % 100) * MICRO, queue=n % 9, tx_bytes=n * 1000)
            if n % 4
            else either[n % 8 // 4](n * 10 * MICRO)
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("bits", [ALL, 0xF000, 0xFF00, 0x8A00, 0xFFFE, 0xEC00, 0x8200, 0xC000, 0xFF81])
@pytest.mark.parametrize(
    "addresses", [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2"), ("10.0.0.1", "192.0.2.1")]
)
def test_every_bitmap_and_address_family_says_the_same(bits: int, addresses: tuple[str, str]) -> None:
    Pair().receive(stacks(50, Reporter(*addresses, bits=bits & ~0x7E)))


def test_the_native_core_takes_the_common_form_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(build_topology(), VirtualClock())
    monkeypatch.setattr(collector, "receive", None)
    receive_together(collector, stacks(200))
    assert collector.counters[Count.REPORTS] == 200
    assert collector.counters[Count.RECORDS] > 500


@pytest.mark.parametrize("synchronised", [True, False])
def test_time_passes_between_batches(synchronised: bool) -> None:
    pair = Pair(synchronised=synchronised)
    payloads = stacks(300)
    for step in range(30):
        pair.clock.advance_to(1000 + step * 40 * MS)
        pair.receive(payloads[10 * step : 10 * step + 10])
    pair.clock.advance_to(pair.clock.now_ns() + 4_000 * MS)
    pair.compare()
    pair.clock.advance_to(pair.clock.now_ns() + 8_000 * MS)
    pair.compare()


def test_other_forms_in_between_are_the_references(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = Pair()
    stacked, single = Reporter(src_port=1), Reporter(src_port=2)
    mixed: list[bytes] = []
    for n in range(20):
        mixed += [stacked.stacked(long_way(n * 100 * MICRO), sequence=n), b"junk", b""]
        mixed += single.hop_by_hop(long_way(n * 100 * MICRO, queued_ns=n * MICRO), payload=bytes([n]))
    pair.receive(mixed)


def test_several_reports_share_a_group_and_repeats_count_once() -> None:
    pair, reporter = Pair(), Reporter()
    ones = [report.decode(reporter.stacked(long_way(n * MICRO))).reports[0] for n in range(4)]
    grouped = [ReportPacket(ReportGroup(1, n, 13), tuple(ones[: n + 1])).encode() for n in range(4)]
    pair.receive([*grouped, *grouped[:2], *stacks(3)])


def test_a_report_of_a_reserved_type_costs_no_other_of_its_group() -> None:
    pair, reporter = Pair(), Reporter()
    payloads = stacks(8, reporter)
    odd = bytes((0x3F, 2, 0, 0)) + bytes(8)
    for index, payload in enumerate(payloads[::2]):
        payloads[2 * index] = payload[:8] + odd + payload[8:]
    pair.receive(payloads)
    counts = pair.native.status().counters
    assert (counts[Count.REPORTS], counts[Count.RESERVED_TYPE], counts.get(Count.MALFORMED)) == (8, 4, None)


def test_exceeded_hops_unknown_nodes_ports_and_neighbours() -> None:
    pair, reporter = Pair(), Reporter()
    hops = long_way()
    odd = [
        [replace(hops[0], node_id=99), *hops[1:]],
        [replace(hops[0], egress_port=77), *hops[1:]],
        [hops[0], hops[2]],
        [hops[0], replace(hops[1], arrived_ns=0, left_ns=5), hops[2]],
        [Hop(11 + n % 3, n * MICRO, n * MICRO + 5, 1, 2) for n in range(20)],
        hops[:1],
    ]
    pair.receive([reporter.stacked(way) for way in odd] + [reporter.stacked(hops, exceeded=True)])


@pytest.mark.parametrize("hops", [64, 65, 66, 100, 126])
def test_ways_longer_than_any_that_is_kept(hops: int) -> None:
    to_and_fro = [Hop(11 + n % 2, n * MICRO, n * MICRO + 5, 1, 2 if n % 2 == 0 else 1) for n in range(hops)]
    for source, target in (("192.0.2.1", "192.0.2.2"), ("10.0.0.1", "10.0.0.2")):
        Pair().receive([Reporter(source, target, bits=0xC000).stacked(to_and_fro)] * 2)


def ways(start_ns: int) -> list[list[Hop]]:
    """Return ways, some of which differ only in a port, a node, or a link."""
    first, second, third = long_way(start_ns)
    return [
        [first, second, third],
        short_way(start_ns),
        [replace(first, egress_port=3), second, third],
        [first, replace(second, egress_port=77), third],
        [first, replace(second, node_id=99), third],
        [first, second, replace(third, egress_port=1)],
        [first, second],
        [second, third],
    ]


@pytest.mark.parametrize("synchronised", [True, False])
@given(st.lists(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 1)), max_size=12), min_size=1, max_size=6))
@settings(max_examples=40)
def test_a_flow_changes_its_way_within_and_between_batches(
    synchronised: bool, batches: list[list[tuple[int, int]]]
) -> None:
    pair, reporters = Pair(synchronised=synchronised), [Reporter(src_port=port) for port in (1, 2)]
    sequence = 0
    for batch in batches:
        payloads: list[bytes] = []
        for which, flow in batch:
            sequence += 1
            payloads.append(reporters[flow].stacked(ways(sequence * MICRO)[which], sequence=sequence))
        pair.receive(payloads)


def test_flows_and_routes_are_bounded_alike() -> None:
    pair = Pair(CollectorSettings(state=StateSettings(max_flows=5, max_routes=1)))
    reporters = [Reporter(src_port=1000 + n) for n in range(9)]
    payloads = [r.stacked(long_way(n * MICRO), sequence=n) for n, r in enumerate(reporters)]
    payloads += [reporters[n % 3].stacked(short_way(n * MICRO), sequence=20 + n) for n in range(6)]
    for n, payload in enumerate(payloads):
        pair.clock.advance_to(1000 + n * 400 * MS)
        pair.receive([payload])


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 170), st.integers(0, 255), st.integers(0, 30)),
        min_size=1,
        max_size=25,
    )
)
def test_damage_of_every_kind_says_the_same(damages: list[tuple[int, int, int, int]]) -> None:
    pair = Pair()
    v4, v6 = Reporter(src_port=1), Reporter("2001:db8::1", "2001:db8::2", 2)
    payloads: list[bytes] = []
    for which, at, flip, cut in damages:
        kinds = [*stacks(2, v4), *stacks(1, v6), *v4.hop_by_hop(long_way()), v4.item(12, Completion(3, 7, 1, 9, 1, 4))]
        good = kinds[which]
        bad = bytearray(good)
        bad[at % len(bad)] ^= flip
        payloads += [bytes(bad[: len(bad) - cut]), good]
    pair.receive(payloads)


@pytest.mark.parametrize(
    "marked_by", [{"int_dscp": None, "int_udp_port": 6001}, {"int_dscp": None}, {"report_udp_port": 6001}]
)
def test_markings_are_the_settings_ones(marked_by: dict[str, int | None]) -> None:
    Pair(CollectorSettings(**marked_by)).receive(stacks(5))  # type: ignore[arg-type]


@pytest.mark.parametrize("tracked", [True, False])
def test_drops_never_leave_the_native_core(tracked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, reporter = Pair(CollectorSettings(state=StateSettings(sample_every=3))), Reporter()
    monkeypatch.setattr(pair.native, "receive", None)
    payloads = stacks(20, Reporter(src_port=7, sequences=reporter.sequences))
    for n in range(1, 4):
        payloads += [reporter.dropped(long_way()[:n], DropReason.QUEUE_FULL, tracked=tracked)] * 2
    pair.receive(payloads)
    assert pair.native.counters[Count.PACKET_DROPPED] == 3
    assert (pair.native.snapshot().links[LinkKey("s1", "s2")].loss or 0) > 0


def test_subscribers_get_drops_up_to_the_limit_and_all_count() -> None:
    collector = Collector(build_topology(), VirtualClock(), CollectorSettings(other_reports_per_s=10))
    got: list[DropRecord] = []
    leave = collector.subscribe_drops(got.extend)
    reporter = Reporter()
    flood = [reporter.dropped(long_way()[:1], DropReason.QUEUE_FULL) for _ in range(50)]
    receive_together(collector, flood)
    assert (len(got), collector.counters[Count.DROPS_WITHHELD]) == (10, 40)
    assert collector.counters[Count.PACKET_DROPPED] == 50
    assert not collector.counters[Count.NOT_READ]
    leave()


def test_flood_of_other_forms_is_read_up_to_the_limit() -> None:
    clock, reporter, other = VirtualClock(), Reporter(), Reporter(src_port=7)
    collector = Collector(build_topology(), clock, CollectorSettings(other_reports_per_s=10))
    flood = [reporter.dropped(long_way()[:1], DropReason.INT_DISCARD) for _ in range(200)]
    receive_together(collector, [*flood[:50], *stacks(5, other), *flood[60:], flood[0], b"junk"])
    assert collector.counters[Count.PACKET_DROPPED] == 10
    assert collector.counters[Count.NOT_READ] == 181
    assert collector.counters[Count.REPEATED] == 1
    assert collector.counters[Count.REPORTS] == 197
    account = collector.snapshot().reporters[11, 0]
    assert (account.received, account.lost, account.duplicate) == (190, 10, 1)
    assert other.flow in collector.snapshot().paths
    clock.advance_to(500 * MS)
    flood = [reporter.dropped(long_way()[:1], DropReason.INT_DISCARD) for _ in range(20)]
    receive_together(collector, flood)
    assert collector.counters[Count.PACKET_DROPPED] == 15


def test_subscribers_get_as_many_records_as_settings_allow() -> None:
    collector = Collector(build_topology(), VirtualClock(), CollectorSettings(records_reports_per_s=30))
    heard: list[Sequence[HopRecord]] = []
    collector.subscribe(heard.append)
    receive_together(collector, stacks(100))
    assert len(heard) == 30
    assert collector.counters[Count.RECORDS_WITHHELD] == 70
    assert collector.counters[Count.REPORTS] == 100


def test_full_flow_table_still_finds_its_flows() -> None:
    most, random = 300, Random(7)
    counters = Counters()
    store = NativeStore(build_topology(), StateSettings(max_flows=most), counters)
    flows = [FlowKey(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), 17, port, 1) for port in range(1000)]
    for number in range(2000):
        flow = random.choice(flows)
        known_flows = {seen.flow for seen in store.flows(number)} if number > 1000 and number % 25 == 0 else None
        forgotten = counters[Count.FLOWS_FORGOTTEN]
        store.take_path(SeenPath(flow, ("s1",), (), None, number))
        if known_flows is not None:
            assert len(known_flows) == store.flow_count == most
            assert counters[Count.FLOWS_FORGOTTEN] - forgotten == (flow not in known_flows)
            assert flow in {seen.flow for seen in store.flows(number)}


def test_every_mode_in_one_batch_says_the_same() -> None:
    pair, sequences = Pair(), dict[int, int]()
    reporters = [Reporter(src_port=port, sequences=sequences) for port in range(1, 7)]
    split, mx, xd, drops, queues, single = reporters
    payloads: list[bytes] = []
    for n in range(6):
        hops = long_way(n * 100 * MICRO, queued_ns=n * MICRO, queue=n)
        payloads += split.intermediate(hops[:2], hops[2:])
        payloads += mx.postcards(hops, mx=True, payload=bytes([n]))
        payloads += xd.postcards(hops, mx=False, payload=bytes([n]))
        payloads += [drops.dropped(hops[:2], 9), queues.congested(hops[1]), *stacks(2, queues)]
        payloads += single.hop_by_hop(hops, payload=bytes([n]))
    pair.receive(payloads)
    paths = pair.native.snapshot().paths
    assert all(paths[reporter.flow].switches == ("s1", "s2", "s3") for reporter in (split, mx, xd, single))


def test_what_waited_for_longer_than_a_window_is_late_alike() -> None:
    pair, split, whole = Pair(), Reporter(src_port=1), Reporter(src_port=2)
    hops = long_way()
    pair.receive([split.intermediate(hops[:2], hops[2:])[0], whole.stacked(hops)])
    for tenths in (11, 41):
        pair.clock.advance_to(pair.clock.now_ns() + tenths * 100 * MS)
        pair.receive([whole.stacked(hops), split.intermediate(hops[:2], hops[2:])[0], whole.stacked(hops)])
    assert pair.native.counters[Count.LATE_SAMPLES]


def test_buffers_of_switches_are_averaged_alike() -> None:
    pair, reporter = Pair(), Reporter(bits=0xFD80)
    told = [[replace(hop, buffer=n + index) for index, hop in enumerate(long_way(n * MICRO))] for n in range(10)]
    pair.receive([reporter.stacked(way) for way in told] + [reporter.stacked(long_way(20 * MICRO))])
    assert pair.native.snapshot().links[LinkKey("s2", "s3")].buffer_occupancy_frames == 5.5
    for n in range(8):
        pair.clock.advance_to(pair.clock.now_ns() + 70 * MS)
        pair.receive([reporter.stacked(told[n])])


def test_rates_of_flows_whose_packets_change_slots_to_and_fro() -> None:
    pair = Pair()
    flows = [Reporter(src_port=5000 + n, bits=0xFD00) for n in range(3)]
    sequences: dict[int, int] = {}
    for number in range(24):
        # A slot is 250 ms: one flow's stamps are of now, another's run ahead, the third's fall behind.
        pair.clock.advance_to(pair.clock.now_ns() + 90 * MS)
        stamps = (number * 90 * MS, number * 120 * MS, number * 60 * MS)
        payloads = []
        for reporter, stamp_ns in zip(flows, stamps, strict=True):
            reporter.sequences = sequences
            payloads.append(reporter.stacked(long_way(stamp_ns)))
        pair.receive(payloads)
    assert len({path.rate_bps for path in pair.native.snapshot().paths.values()}) > 1
