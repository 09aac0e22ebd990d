"""Records to paths, link windows and snapshots: delays by hand, order, lateness, age, bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import permutations
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.native.accumulator import NativeStore
from collectors.reference.builder import PlainStateBuilder
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.state.accumulator import Store
from collectors.state.builder import NetworkStateBuilder, StateBuilder
from collectors.values import DelaySource, FlowKey, HopRecord, LinkState, RecordKind, Snapshot
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey, Topology
from tests.collectors.cores import StoreFactory, plain_store
from tests.collectors.reports import MICRO, Hop, Reporter, build_topology, long_way, short_way

MS = 1_000_000
FLOW = Reporter().flow


def records(
    hops: Iterable[Hop],
    *,
    received_ns: int = 0,
    flow: FlowKey = FLOW,
    packet_id: int = 1,
    hop_by_hop: bool = False,
    sequence: int = 0,
) -> list[HopRecord]:
    path = list(hops)
    return [
        HopRecord(
            received_ns,
            flow,
            hop.node_id if hop_by_hop else path[-1].node_id,
            sequence,
            index,
            None if hop_by_hop and index < len(path) - 1 else len(path),
            hop.node_id,
            hop.ingress_port,
            hop.egress_port,
            hop.left_ns - hop.arrived_ns,
            0,
            hop.queue,
            hop.arrived_ns,
            hop.left_ns,
            hop.tx_bytes,
            packet_id,
            RecordKind.HOP_BY_HOP if hop_by_hop else RecordKind.STACK,
        )
        for index, hop in enumerate(path)
    ]


def state_builder(
    topology: Topology, clock: VirtualClock, settings: StateSettings, counters: Counters, store: Store
) -> StateBuilder:
    """Return what builds the state over a store of either kind, of hops that wait in plain Python."""
    if isinstance(store, NativeStore):
        stitcher = PlainStitcher(topology, settings, counters)
        return NetworkStateBuilder(topology, clock, settings, counters, store, stitcher)
    return PlainStateBuilder(topology, clock, settings, counters, store)


class Bench:
    """A builder on a manual clock; with the store that a test runs over."""

    make_store: ClassVar[StoreFactory] = plain_store

    def __init__(self, topology: Topology | None = None, settings: StateSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.counters = Counters()
        topology, settings = topology or build_topology(), settings or StateSettings()
        self.store = type(self).make_store(topology, settings, self.counters)
        self.builder = state_builder(topology, self.clock, settings, self.counters, self.store)

    def snapshot(self) -> Snapshot:
        return self.builder.snapshot()

    def link(self, src: str, dst: str) -> LinkState:
        return self.snapshot().links[LinkKey(src, dst)]


@pytest.fixture(autouse=True, params=[plain_store, NativeStore], ids=["reference", "native"])
def every_store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "make_store", staticmethod(request.param))


def test_sketches_are_those_behind_the_figures() -> None:
    bench = Bench()
    assert bench.builder.delays() == {}
    for number in range(150):
        start_ns = number * MS
        bench.clock.advance_to(start_ns)
        bench.builder.add(records(long_way(start_ns, queued_ns=number**2 * 10), packet_id=number, received_ns=start_ns))
    delays = bench.builder.delays()
    for key, link in bench.snapshot().links.items():
        assert (key in delays) == (link.samples > 0)
        if key in delays:
            sketch = delays[key]
            assert (sketch.count, sketch.mean, sketch.greatest) == (link.samples, link.delay_mean_ns, link.delay_max_ns)
            assert (sketch.quantile(0.5), sketch.quantile(0.99)) == (link.delay_p50_ns, link.delay_p99_ns)
    assert len(delays[LinkKey("s2", "s3")].buckets) > 50
    bench.clock.advance_to(20_000 * MS)
    assert bench.builder.delays() == {}


def test_snapshot_is_unchanged_by_later_records() -> None:
    bench = Bench()
    bench.builder.add(records(long_way(), packet_id=1))
    bench.builder.count(FLOW, 1000)
    late, early = bench.snapshot(), bench.snapshot()
    seen = (dict(early.links), dict(early.paths))
    for number in range(2, 40):
        bench.clock.advance_to(number * MS)
        way = short_way(number * MS) if number > 20 else long_way(number * MS, queued_ns=number * MICRO)
        bench.builder.add(records(way, packet_id=number, received_ns=number * MS))
        bench.builder.count(FLOW, 1000)
    assert (late.links, late.paths) == seen
    now = bench.snapshot()
    assert now.paths[FLOW].switches != late.paths[FLOW].switches
    assert now.links != late.links


def test_without_reports_every_link_is_nominal() -> None:
    snapshot = Bench().snapshot()
    assert set(snapshot.links) == set(build_topology().directed_links)
    link = snapshot.links[LinkKey("s1", "s2")]
    assert (link.delay_mean_ns, link.delay_p50_ns, link.delay_p99_ns) == (5 * MICRO,) * 3
    assert (link.age_ns, link.samples, link.source, link.loss) == (None, 0, DelaySource.NOMINAL, None)
    assert (link.utilisation, link.available_bps, link.queue_occupancy_frames) == (0.0, link.rate_bps, 0.0)
    assert not snapshot.paths


@pytest.mark.parametrize("hop_by_hop", [False, True])
def test_stamps_of_both_ends_give_the_exact_link_delay(hop_by_hop: bool) -> None:
    bench = Bench()
    bench.builder.add(records(long_way(queued_ns=100 * MICRO, queue=12, tx_bytes=0), hop_by_hop=hop_by_hop))
    first, second, last = bench.link("s1", "s2"), bench.link("s2", "s3"), bench.link("s3", "h2")
    assert (first.delay_mean_ns, first.source) == (7 * MICRO, DelaySource.STAMPS)
    assert (second.delay_mean_ns, second.source) == (107 * MICRO, DelaySource.STAMPS)
    # No stamp at a host: the hop's 2 us and the link's 5 us.
    assert (last.delay_mean_ns, last.source) == (7 * MICRO, DelaySource.HOP_LATENCY)
    assert [link.samples for link in (first, second, last)] == [1, 1, 1]
    assert (second.queue_occupancy_frames, first.queue_occupancy_frames) == (12.0, 0.0)


@pytest.mark.parametrize("hop_by_hop", [False, True])
def test_unsynchronised_clocks_leave_hop_latency_and_propagation(hop_by_hop: bool) -> None:
    bench = Bench(build_topology(synchronised=False))
    hops = long_way(queued_ns=100 * MICRO)
    hops[1] = replace(hops[1], arrived_ns=hops[1].arrived_ns + 10**15, left_ns=hops[1].left_ns + 10**15)
    bench.builder.add(records(hops, hop_by_hop=hop_by_hop))
    assert bench.link("s1", "s2").delay_mean_ns == 7 * MICRO
    assert bench.link("s2", "s3").delay_mean_ns == 107 * MICRO
    assert bench.link("s2", "s3").source is DelaySource.HOP_LATENCY


def test_reversed_stamps_are_counted_and_hop_latency_stands_in() -> None:
    bench = Bench()
    hops = long_way()
    hops[1] = replace(hops[1], arrived_ns=-1, left_ns=2 * MICRO - 1)
    bench.builder.add(records(hops))
    assert bench.counters[Count.IMPLAUSIBLE_STAMPS] == 1
    assert (bench.link("s1", "s2").delay_mean_ns, bench.link("s1", "s2").source) == (
        7 * MICRO,
        DelaySource.HOP_LATENCY,
    )


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_hop_by_hop_reports_may_come_in_any_order(order: tuple[int, ...]) -> None:
    bench = Bench()
    hops = records(long_way(queued_ns=MICRO), hop_by_hop=True)
    for index in order:
        bench.builder.add([hops[index]])
    path = bench.snapshot().paths[FLOW]
    assert path.switches == ("s1", "s2", "s3")
    assert bench.link("s1", "s2").delay_mean_ns == 7 * MICRO
    assert bench.link("s2", "s3").delay_mean_ns == 8 * MICRO
    assert bench.counters[Count.INCOMPLETE_PACKETS] == 0


def test_interleaved_packets_are_told_apart_by_their_ids() -> None:
    bench = Bench()
    first = records(long_way(0), hop_by_hop=True, packet_id=1)
    two = records(long_way(50 * MICRO, queued_ns=30 * MICRO), hop_by_hop=True, packet_id=2)
    for pair in zip(first, two, strict=True):
        for record in pair:
            bench.builder.add([record])
    link = bench.link("s2", "s3")
    assert (link.samples, link.delay_mean_ns, link.delay_max_ns) == (2, 22 * MICRO, 37 * MICRO)


def test_lost_hop_report_leaves_the_others_and_no_path() -> None:
    bench = Bench(settings=StateSettings(max_pending_packets=1))
    hops = records(long_way(), hop_by_hop=True)
    bench.builder.add([hops[0]])
    bench.builder.add([hops[2]])
    assert not bench.snapshot().paths
    assert bench.link("s3", "h2").samples == 1
    assert bench.link("s1", "s2").samples == 0  # its delay waits for a stamp that never comes
    bench.builder.add(records(short_way(), hop_by_hop=True, packet_id=2)[:1])
    assert bench.counters[Count.INCOMPLETE_PACKETS] == 1


def test_a_path_has_the_delay_and_bottleneck_of_its_links() -> None:
    bench = Bench()
    bench.builder.add(records(long_way(queued_ns=93 * MICRO, tx_bytes=4_096_000)))
    path = bench.snapshot().paths[FLOW]
    # Host links 5 us nominal and 7 us; s1-s2 7 us; s2-s3 100 us with 500 Mbit/s of load.
    assert path.delay_ns == (5 + 7 + 100 + 7) * MICRO
    assert path.bottleneck_bps == 500_000_000
    assert bench.link("s2", "s3").utilisation == 0.5


def test_load_beyond_the_rate_is_the_rate() -> None:
    bench = Bench()
    bench.builder.add(records(long_way(tx_bytes=2**31)))
    link = bench.link("s2", "s3")
    assert (link.utilisation, link.available_bps) == (1.0, 0)


def test_a_flow_that_moves_has_its_new_path() -> None:
    bench = Bench()
    bench.builder.add(records(long_way()))
    bench.builder.add(records(short_way(50 * MICRO), received_ns=1))
    assert bench.snapshot().paths[FLOW].switches == ("s1", "s3")


def test_a_late_report_of_the_old_path_does_not_bring_it_back() -> None:
    bench = Bench()
    bench.builder.add(records(short_way(50 * MICRO)))
    bench.builder.add(records(long_way(), received_ns=1))
    assert bench.snapshot().paths[FLOW].switches == ("s1", "s3")


def test_flows_between_strangers_have_their_switches() -> None:
    bench = Bench()
    stranger = Reporter("192.0.2.1", "192.0.2.2").flow
    bench.builder.add(records(long_way(), flow=stranger))
    path = bench.snapshot().paths[stranger]
    # Three switches, and the link that the last one sent the packets out by.
    assert (path.switches, path.delay_ns) == (("s1", "s2", "s3"), 21 * MICRO)


def test_unknown_nodes_ports_and_neighbours_are_counted() -> None:
    bench = Bench()
    hops = long_way()
    bench.builder.add(records([replace(hops[0], node_id=99), *hops[1:]]))
    assert bench.counters[Count.UNKNOWN_NODE] == 1
    bench.builder.add(records([replace(hops[0], egress_port=77), *hops[1:]]))
    assert bench.counters[Count.UNKNOWN_PORT] == 1
    bench.builder.add(records([hops[0], hops[2]]))  # port 2 leads to s2, not to s3
    assert bench.counters[Count.NOT_ADJACENT] == 1
    assert bench.link("s2", "s3").samples == 2


def test_next_hop_and_destination_identify_links_without_ports() -> None:
    bench = Bench()
    bench.builder.add([replace(hop, ingress_port=None, egress_port=None) for hop in records(long_way())])
    assert [bench.link(*pair).samples for pair in (("s1", "s2"), ("s2", "s3"), ("s3", "h2"))] == [1, 1, 1]


def test_a_window_forgets_what_is_older_than_itself() -> None:
    bench = Bench(settings=StateSettings(window_ns=100 * MS))
    for at_ns, queued_ns in ((0, 1000 * MICRO), (90 * MS, 2 * MICRO), (150 * MS, 4 * MICRO)):
        bench.builder.add(records(long_way(at_ns, queued_ns), received_ns=at_ns))
    link = bench.link("s2", "s3")
    assert (link.samples, link.delay_mean_ns) == (2, 10 * MICRO)


def test_stale_link_returns_to_nominal_figures_and_keeps_its_age() -> None:
    bench = Bench(settings=StateSettings(stale_after_ns=1000 * MS))
    bench.builder.add(records(long_way(queued_ns=100 * MICRO, queue=9, tx_bytes=4_096_000)))
    bench.clock.advance_to(1000 * MS)
    fresh = bench.link("s2", "s3")
    assert (fresh.delay_mean_ns, fresh.age_ns, fresh.source) == (107 * MICRO, 1000 * MS, DelaySource.STAMPS)
    bench.clock.advance_to(1000 * MS + 1)
    stale = bench.link("s2", "s3")
    assert (stale.delay_mean_ns, stale.queue_occupancy_frames, stale.available_bps) == (5 * MICRO, 0.0, stale.rate_bps)
    assert (stale.age_ns, stale.source, stale.samples) == (1000 * MS + 1, DelaySource.NOMINAL, 0)


def test_a_flow_without_news_is_no_longer_listed() -> None:
    bench = Bench(settings=StateSettings(forget_path_after_ns=10))
    bench.builder.add(records(long_way()))
    bench.clock.advance_to(10)
    assert bench.snapshot().paths[FLOW].age_ns == 10
    bench.clock.advance_to(11)
    assert not bench.snapshot().paths


def test_flows_are_bounded_and_the_one_unheard_for_longest_goes() -> None:
    bench = Bench(settings=StateSettings(max_flows=2))
    flows = [replace(FLOW, src_port=port) for port in (1, 2, 3)]
    for flow in (flows[0], flows[1], flows[0], flows[2]):
        bench.builder.add(records(long_way(), flow=flow))
    assert set(bench.snapshot().paths) == {flows[0], flows[2]}
    assert bench.counters[Count.FLOWS_FORGOTTEN] == 1


def test_sample_before_the_window_is_late_and_ignored() -> None:
    bench = Bench(settings=StateSettings(window_ns=100 * MS))
    for at_ns in (440 * MS, 460 * MS, 480 * MS, 500 * MS):  # from four parts of a window: the clock is believed then
        bench.builder.add(records(long_way(at_ns), received_ns=at_ns))
    bench.builder.add(records(long_way(300 * MS, queued_ns=MS), received_ns=501 * MS))
    assert bench.link("s2", "s3").delay_mean_ns == 7 * MICRO
    assert bench.counters[Count.LATE_SAMPLES] == 3


def test_late_sample_in_the_window_does_not_replace_the_newest() -> None:
    bench = Bench(settings=StateSettings(window_ns=100 * MS))
    bench.builder.add(records(long_way(500 * MS, tx_bytes=8_192), received_ns=500 * MS))
    bench.builder.add(records(long_way(450 * MS, tx_bytes=4_096_000), received_ns=501 * MS))
    link = bench.link("s2", "s3")
    assert link.samples == 2
    assert link.utilisation == pytest.approx(0.001)


def test_a_switch_whose_clock_begins_anew_is_believed_again() -> None:
    bench = Bench()
    bench.builder.add(records(long_way(10**12), received_ns=0))
    bench.builder.add(records(long_way(0, queued_ns=MICRO), received_ns=MS))
    assert bench.link("s2", "s3").samples == 2
    assert bench.counters[Count.LATE_SAMPLES] == 0


@given(
    st.lists(
        st.builds(
            HopRecord,
            received_ns=st.integers(0, 10**10),
            flow=st.sampled_from([FLOW, replace(FLOW, dst_port=1)]),
            reporter_id=st.integers(10, 14),
            sequence=st.integers(0, 3),
            hop_index=st.integers(0, 4),
            hop_count=st.none() | st.integers(1, 4),
            node_id=st.integers(10, 14),
            ingress_port=st.none() | st.integers(0, 4),
            egress_port=st.none() | st.integers(0, 4),
            hop_latency_ns=st.none() | st.integers(0, 2**32 - 1),
            queue_id=st.none(),
            queue_occupancy_frames=st.none() | st.integers(0, 2**24),
            ingress_timestamp_ns=st.none() | st.integers(0, 2**63),
            egress_timestamp_ns=st.none() | st.integers(0, 2**63),
            tx_bytes_per_window=st.none() | st.integers(0, 2**32),
            packet_id=st.integers(0, 2),
            kind=st.sampled_from(RecordKind),
        ),
        max_size=12,
    )
)
def test_any_records_leave_a_sound_snapshot(hops: list[HopRecord]) -> None:
    bench = Bench(settings=StateSettings(max_pending_packets=3, max_flows=1))
    bench.builder.add(hops)
    snapshot = bench.snapshot()
    for link in snapshot.links.values():
        assert 0 <= link.utilisation <= 1
        assert 0 <= link.available_bps <= link.rate_bps
        assert 0 <= link.delay_p50_ns <= link.delay_p99_ns
    assert len(snapshot.paths) <= 1


def test_utilisation_is_the_mean_of_the_switchs_own_windows() -> None:
    bench = Bench()
    # Three readings of one of the switch's windows count once, as the last says; then another window.
    for at_ns, tx_bytes in ((0, 1_024_000), (1_000_000, 1_024_000), (2_000_000, 2_048_000), (70_000_000, 6_144_000)):
        bench.clock.advance_to(at_ns)
        bench.builder.add(records(long_way(at_ns, tx_bytes=tx_bytes), received_ns=at_ns, packet_id=at_ns))
    # Of 8.192 MB that 1 Gbit/s carries in 65.536 ms: a quarter and three quarters.
    assert bench.link("s2", "s3").utilisation == pytest.approx(0.5)


def test_flow_rate_scales_with_the_sampling_ratio() -> None:
    bench = Bench(settings=StateSettings(sample_every=10))
    bench.builder.add(records(long_way()))
    for number in range(100):
        bench.clock.advance_to(number * 20_000_000)
        bench.builder.count(FLOW, 962)
    bench.clock.advance_to(2_000_000_000)
    # 50 measured packets a second, each for 10 of 1000 bytes on the wire.
    assert bench.snapshot().paths[FLOW].rate_bps == pytest.approx(4_000_000, rel=0.02)


def test_flows_without_a_path_are_bounded() -> None:
    bench = Bench(settings=StateSettings(max_flows=10))
    for port in range(100):
        bench.builder.count(FlowKey(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), 17, port, 1), 100)
    assert bench.store.flow_count == 10
    # Each packet beyond the tenth either gained its flow a place or was counted as not admitted.
    assert bench.counters[Count.FLOWS_FORGOTTEN] + bench.counters[Count.FLOWS_NOT_ADMITTED] == 90


def sends(bench: Bench, number: int, stamp_ns: int, received_ns: int) -> None:
    """A packet of 962 bytes that came to its first switch when its stamp says, and is reported when it was received."""
    bench.clock.advance_to(received_ns)
    bench.builder.count(FLOW, 962, stamp_ns)
    bench.builder.add(records(long_way(stamp_ns), packet_id=number, received_ns=received_ns))


def test_flow_rate_behind_a_growing_queue_is_the_sending_rate() -> None:
    bench = Bench()
    for number in range(200):
        # Sent each 10 ms, by a clock that is 3 s ahead; each waits 2 ms longer than the one before.
        sends(bench, number, 3_000 * MS + number * 10 * MS, 50 * MS + number * 12 * MS)
    path = bench.snapshot().paths[FLOW]
    assert path.rate_bps == pytest.approx(800_000, rel=0.02)
    assert not path.is_young


def test_a_young_flows_rate_counts_its_first_packet() -> None:
    bench = Bench()
    for number in range(5):
        sends(bench, number, number * 100 * MS, 50 * MS + number * 100 * MS)
    path = bench.snapshot().paths[FLOW]
    assert path.is_young
    assert (path.rate_bps, path.measured_bytes) == (5 * 8_000 * 10 // 4, 5_000)


def test_stamps_that_jump_do_not_move_a_flows_window() -> None:
    bench = Bench()
    for number in range(100):
        jump_ns = 10**13 if number == 50 else 0
        sends(bench, number, number * 20 * MS + jump_ns, 50 * MS + number * 20 * MS)
    assert bench.snapshot().paths[FLOW].rate_bps == pytest.approx(400_000, rel=0.05)


def test_a_flow_that_ends_has_no_rate_after_the_window() -> None:
    bench = Bench()
    for number in range(100):
        sends(bench, number, number * 20 * MS, 50 * MS + number * 20 * MS)
    bench.clock.advance_to(5_000 * MS)
    assert bench.snapshot().paths[FLOW].rate_bps == 0
