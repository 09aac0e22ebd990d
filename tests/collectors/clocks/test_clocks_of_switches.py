"""Switches with unsynchronised clocks, through the whole collector: corrected delays, sources, clocks."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.settings import CollectorSettings, Core, StateSettings
from collectors.values import DelaySource, Snapshot
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import MICRO, Hop, Reporter, build_topology, long_way

MS = 1_000_000
AHEAD = {11: 0, 12: 7_000 * MS, 13: 10**15}
"""Lead of each switch's clock, in nanoseconds."""

BEGINS_NS = 20_000 * MS


def on_own_clocks(hops: Sequence[Hop], ahead: Mapping[int, int], drifts_ppb: Mapping[int, int]) -> list[Hop]:
    def reads(node_id: int, time_ns: int) -> int:
        return time_ns + ahead.get(node_id, 0) + drifts_ppb.get(node_id, 0) * time_ns // 1_000_000_000

    return [
        replace(hop, arrived_ns=reads(hop.node_id, hop.arrived_ns), left_ns=reads(hop.node_id, hop.left_ns))
        for hop in hops
    ]


def way_back(start_ns: int) -> list[Hop]:
    """Return a packet's hops over s3, s2, s1; a link costs 5 us, a hop 2 us."""
    ports = {13: (2, 1), 12: (2, 1), 11: (2, 1)}
    return [
        Hop(node, start_ns + 7 * MICRO * index, start_ns + (7 * index + 2) * MICRO, *ports[node])
        for index, node in enumerate((13, 12, 11))
    ]


class Bench:
    """h1 and h2 send to each other, a packet every 10 ms; s2 delays those to h2."""

    def __init__(self, core: Core, mode: str, synchronised: bool = False, state: StateSettings | None = None) -> None:
        self.clock = VirtualClock()
        self.clock.advance_to(BEGINS_NS)
        self.ahead = {} if synchronised else AHEAD
        self.collector = Collector(
            build_topology(synchronised), self.clock, CollectorSettings(core=core, state=state or StateSettings())
        )
        self.there, self.back = Reporter(), Reporter(src="10.0.0.2", dst="10.0.0.1", sequences={})
        self.back.sequences = self.there.sequences
        self.mode = mode
        self.drifts_ppb: dict[int, int] = {}

    def run(self, packets: int, queued_ns: int = 0, both_ways: bool = True) -> Snapshot:
        for number in range(packets):
            now_ns = self.clock.now_ns()
            self.send(self.there, long_way(now_ns, queued_ns=queued_ns), number)
            if both_ways:
                self.send(self.back, way_back(now_ns + MS), number)
            self.clock.advance_to(now_ns + 10 * MS)
        return self.collector.snapshot()

    def send(self, reporter: Reporter, hops: list[Hop], number: int) -> None:
        hops = on_own_clocks(hops, self.ahead, self.drifts_ppb)
        if self.mode == "stacked":
            receive_together(self.collector, [reporter.stacked(hops)])
        else:
            for report in reporter.hop_by_hop(hops, payload=b"%d" % number):
                self.collector.receive(report)


@every_core
@pytest.mark.parametrize("mode", ["stacked", "hop by hop"])
def test_two_way_packets_give_delays_with_unsynchronised_clocks(core: Core, mode: str) -> None:
    bench = Bench(core, mode)
    snapshot = bench.run(100, queued_ns=40 * MICRO)
    queued, back = snapshot.links[LinkKey("s2", "s3")], snapshot.links[LinkKey("s3", "s2")]
    # Arrival to arrival: 2 us of work, 40 us of queue, 5 us of cable.
    assert queued.delay_p50_ns == pytest.approx(47 * MICRO, rel=0.01)
    assert back.delay_p50_ns == pytest.approx(7 * MICRO, rel=0.01)
    assert queued.source is back.source is DelaySource.CORRECTED_STAMPS
    assert queued.delay_uncertainty_ns is not None
    assert queued.delay_uncertainty_ns < 2 * MICRO
    assert [snapshot.clocks[node].offset_ns for node in AHEAD] == pytest.approx(list(AHEAD.values()), abs=100)


@every_core
def test_one_way_packets_leave_hop_latency_and_configured_delay(core: Core) -> None:
    snapshot = Bench(core, "stacked").run(100, queued_ns=40 * MICRO, both_ways=False)
    state = snapshot.links[LinkKey("s2", "s3")]
    assert state.delay_p50_ns == pytest.approx(47 * MICRO, rel=0.01)
    assert (state.source, state.delay_uncertainty_ns) == (DelaySource.HOP_LATENCY, None)
    assert snapshot.clocks == {}


def test_a_path_has_the_corrected_delay_of_its_links() -> None:
    bench = Bench(Core.REFERENCE, "stacked")
    snapshot = bench.run(100, queued_ns=40 * MICRO)
    path = snapshot.paths[bench.there.flow]
    # Three hops of 2 us, a queue of 40 us, the access link before and three cables of 5 us each after them.
    assert path.delay_p50_ns == pytest.approx((3 * 2 + 40 + 4 * 5) * MICRO, rel=0.02)


@every_core
@pytest.mark.parametrize("synchronised", [True, False])
def test_delays_that_only_probes_tell_say_so(core: Core, synchronised: bool) -> None:
    bench = Bench(core, "stacked", synchronised, StateSettings(probe_udp_port=6001))
    state = bench.run(60).links[LinkKey("s2", "s3")]
    assert state.source is DelaySource.PROBES
    assert state.delay_p50_ns == pytest.approx(7 * MICRO, rel=0.01)
    bench.there = replace(bench.there, dst_port=80)
    better = bench.run(5).links[LinkKey("s2", "s3")]
    assert better.source is (DelaySource.STAMPS if synchronised else DelaySource.CORRECTED_STAMPS)


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 1000), drifts=st.lists(st.integers(-100_000, 100_000), min_size=3, max_size=3))
@example(seed=367, drifts=[0, 0, 0])
def test_both_cores_say_the_same_to_the_nanosecond(seed: int, drifts: list[int]) -> None:
    histories = []
    for core in Core:
        bench, rng = Bench(core, "stacked"), random.Random(seed)
        bench.drifts_ppb = dict(zip(AHEAD, drifts, strict=True))
        # The first packets go both ways: without any way back no clock is corrected.
        snapshots = [
            bench.run(15, queued_ns=rng.randrange(50 * MICRO), both_ways=turn == 0 or rng.random() < 0.8)
            for turn in range(4)
        ]
        histories.append([(taken.clocks, taken.links, taken.paths) for taken in snapshots])
    assert histories[0] == histories[1]
    assert DelaySource.CORRECTED_STAMPS in {state.source for state in histories[0][-1][1].values()}


def test_synchronised_clocks_are_not_estimated() -> None:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(Reporter().stacked(long_way()))
    snapshot = collector.snapshot()
    assert snapshot.links[LinkKey("s2", "s3")].source is DelaySource.STAMPS
    assert snapshot.clocks == {}
