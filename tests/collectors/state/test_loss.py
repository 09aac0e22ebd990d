"""Loss of links: packets that vanish between two hops, drops that switches report, and never a report for a packet."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.settings import CollectorSettings, StateSettings
from collectors.values import LinkState, LossSource, PathState
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.reports import Hop, Reporter, build_topology, long_way

MS = 1_000_000
STATE = StateSettings(window_ns=800 * MS, longest_wait_ns=200 * MS)


class Bench:
    """A collector whose packets take the way over s1, s2, s3 or get lost on it, 10 ms apart."""

    def __init__(self, state: StateSettings = STATE, mx: bool = True) -> None:
        self.clock = VirtualClock()
        self.collector = Collector(build_topology(), self.clock, CollectorSettings(state=state))
        self.reporter = Reporter()
        self.mx = mx
        self.packets = 0

    def reports(self, reach: int = 3) -> list[bytes]:
        """Return the reports of the next packet, which reaches this many switches."""
        self.packets += 1
        hops = long_way(self.clock.now_ns())
        payload = b"packet %d" % self.packets
        if self.mx:
            return self.reporter.postcards(hops[:reach], mx=True, payload=payload)
        payloads = self.reporter.hop_by_hop(hops, payload=payload)
        for hop in hops[reach:]:
            self.reporter.sequences[hop.node_id] -= 1  # reports never sent have no number
        return payloads[:reach]

    def receive(self, payloads: Sequence[bytes]) -> None:
        self.clock.advance_to(self.clock.now_ns() + 10 * MS)
        for payload in payloads:
            self.collector.receive(payload)

    def go_on(self, packets: int) -> None:
        """Let this many packets pass without loss."""
        for _ in range(packets):
            self.receive(self.reports())

    def link(self, src: str, dst: str) -> LinkState:
        return self.collector.snapshot().links[LinkKey(src, dst)]

    def path(self) -> PathState:
        return self.collector.snapshot().paths[self.reporter.flow]


@pytest.mark.parametrize("mx", [True, False])
def test_packet_unreported_by_the_next_hop_is_lost_between(mx: bool) -> None:
    bench = Bench(mx=mx)
    for number in range(100):
        bench.receive(bench.reports(2 if number % 10 == 3 else 3))
    lossy, sound = bench.link("s2", "s3"), bench.link("s1", "s2")
    assert lossy.loss == pytest.approx(0.1, abs=0.02)
    assert lossy.loss_source is LossSource.PACKET_COUNTS
    assert (sound.loss, sound.loss_source) == (0.0, LossSource.PACKET_COUNTS)
    assert bench.path().loss == pytest.approx(lossy.loss)


def test_links_that_nothing_tells_of_have_no_loss() -> None:
    bench = Bench()
    bench.go_on(100)
    state = bench.link("s3", "s2")
    assert (state.loss, state.loss_source) == (None, None)
    for _ in range(150):
        bench.receive([bench.reporter.stacked(long_way(bench.clock.now_ns()))])
    assert bench.link("s2", "s3").loss is None
    assert bench.path().loss is None


@pytest.mark.parametrize("node", [0, 1, 2])
def test_a_lost_report_is_not_a_lost_packet(node: int) -> None:
    bench = Bench()
    for number in range(100):
        reports = bench.reports()
        if number % 7 == 3:
            del reports[node]
        bench.receive(reports)
    assert bench.link("s1", "s2").loss == 0.0
    assert bench.link("s2", "s3").loss == 0.0


def test_lost_reports_hide_lost_packets_rather_than_add_to_them() -> None:
    bench = Bench()
    for number in range(100):
        reports = bench.reports(2 if number % 5 == 0 else 3)
        if number % 10 == 6:
            del reports[-1]  # a tenth of s3's reports
        bench.receive(reports)
    loss = bench.link("s2", "s3").loss
    assert loss is not None
    assert 0.05 <= loss <= 0.2


def test_late_report_counts_as_no_loss() -> None:
    bench = Bench()
    bench.go_on(1)  # before a reporter's first number nothing is known to be missing
    for _ in range(8):
        late: list[bytes] = []
        for _ in range(5):
            *first, last = bench.reports()
            bench.receive(first)
            late.append(last)
        bench.go_on(40)
        bench.receive(late)
        assert bench.link("s2", "s3").loss == 0.0


def test_losses_that_are_over_are_forgotten() -> None:
    bench = Bench()
    for _ in range(100):
        bench.receive(bench.reports(2))
    assert bench.link("s2", "s3").loss == 1.0
    bench.go_on(200)
    assert bench.link("s2", "s3").loss == 0.0


def at_s2(bench: Bench, egress: int = 2) -> list[Hop]:
    """Return the hops of a packet that s2 drops before it leaves by a port."""
    first, second, _ = long_way(bench.clock.now_ns())
    return [first, Hop(12, second.arrived_ns, second.left_ns, 1, egress)]


def test_reported_drops_count_as_loss_of_the_egress_link() -> None:
    bench = Bench()
    for _ in range(30):
        stacks = [bench.reporter.stacked(long_way(bench.clock.now_ns())) for _ in range(3)]
        bench.receive([*stacks, bench.reporter.dropped(at_s2(bench), DropReason.QUEUE_FULL)])
    state = bench.link("s2", "s3")
    assert state.loss == pytest.approx(0.25, abs=0.03)
    assert state.loss_source is LossSource.DROP_REPORTS
    # s1 and s3 have reported no drops; whether they would is unknown.
    assert bench.link("s1", "s2").loss is None


def test_drop_reporting_switch_has_no_loss_on_other_links() -> None:
    bench = Bench()
    bench.receive([bench.reporter.dropped(at_s2(bench), DropReason.QUEUE_FULL)])
    for _ in range(100):
        bench.receive([bench.reporter.stacked(long_way(bench.clock.now_ns()))])
    assert bench.link("s2", "s3").loss == 0.0


def test_link_that_drops_everything_has_a_loss_without_samples() -> None:
    bench = Bench()
    bench.receive([bench.reporter.dropped(at_s2(bench), DropReason.QUEUE_FULL)])
    state = bench.link("s2", "s3")
    assert (state.loss, state.samples) == (1.0, 0)


@pytest.mark.parametrize(("reason", "tracked"), [(DropReason.INT_DISCARD, True), (DropReason.QUEUE_FULL, False)])
def test_intended_and_unmeasured_drops_are_no_loss(reason: DropReason, tracked: bool) -> None:
    bench = Bench()
    for _ in range(50):
        dropped = bench.reporter.dropped(at_s2(bench), reason, tracked=tracked)
        bench.receive([bench.reporter.stacked(long_way(bench.clock.now_ns())), dropped])
    assert bench.link("s2", "s3").loss == 0.0


def test_drop_at_the_first_switch_is_scaled_by_the_sampling() -> None:
    bench = Bench(StateSettings(window_ns=800 * MS, sample_every=10))
    for _ in range(100):
        drops = [bench.reporter.dropped(long_way()[:1], DropReason.QUEUE_FULL, tracked=False) for _ in range(10)]
        bench.receive([bench.reporter.stacked(long_way(bench.clock.now_ns())), *drops])
    assert bench.link("s1", "s2").loss == pytest.approx(0.5, abs=0.05)


def test_reported_drop_is_no_loss_on_the_way_to_the_switch() -> None:
    bench = Bench()
    for number in range(100):
        if number % 5:
            bench.receive(bench.reports())
        else:
            # The report of the first hop, and that of the drop at the second.
            bench.receive([*bench.reports(1), bench.reporter.dropped(at_s2(bench), DropReason.QUEUE_FULL)])
    assert bench.link("s1", "s2").loss == 0.0
    assert bench.link("s2", "s3").loss == pytest.approx(0.2, abs=0.05)


@settings(deadline=None, max_examples=10)
@given(
    packets=st.lists(st.integers(0, 3), min_size=20, max_size=60),
    lost_reports=st.floats(0, 0.3),
    seed=st.integers(0, 99),
)
def test_loss_is_never_told_too_great(packets: list[int], lost_reports: float, seed: int) -> None:
    """Whatever packets and reports are lost: never more packets of a link than really were."""
    bench, rng = Bench(StateSettings(window_ns=4000 * MS, longest_wait_ns=100 * MS)), random.Random(seed)
    bench.go_on(2)
    for reach in packets:
        bench.receive([report for report in bench.reports(reach) if rng.random() >= lost_reports])
    # The sequence numbers behind the last losses, and the end of waiting.
    bench.go_on(200)
    meter = bench.collector._state._losses
    for number, link in enumerate((("s1", "s2"), ("s2", "s3")), 1):
        state = bench.link(*link)
        assert state.loss is not None
        slots = meter._links[state.link].within(0, bench.clock.now_ns() // (500 * MS) - 2)
        counted = sum(counts.passed + counts.missing for counts in slots)
        assert round(state.loss * counted) <= sum(reach == number for reach in packets)
