"""Virtual time paced by a manual clock: lateness is counted, and dropped where it cannot be made up."""

from __future__ import annotations

import pytest

from dataplane.clock import VirtualClock
from dataplane.fabric.hosts import Arrivals, flow_between
from dataplane.fabric.live.pacing import MOST_BEHIND_NS, SKIP_AFTER_NS, TURN_NS, Pacer
from dataplane.fabric.live.traffic import Demand, VirtualTraffic
from dataplane.fabric.live.values import TrafficCounters
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.families import leaf_spine

MS = 1_000_000


@pytest.fixture
def clock() -> VirtualClock:
    """The machine's clock, which stops while the fabric works."""
    return VirtualClock(77 * MS)


@pytest.fixture
def fabric() -> VirtualFabric:
    return VirtualFabric(leaf_spine(1, 2, 1), clock=VirtualClock(5_000 * MS))


def test_events_happen_when_their_time_has_come(fabric: VirtualFabric, clock: VirtualClock) -> None:
    pacer, done = Pacer.of(fabric, clock), list[int]()
    fabric.call_after(3 * MS, lambda: done.append(fabric.now_ns))
    assert pacer.take_turn() == 3 * MS
    clock.advance_to(clock.time_ns + 2 * MS)
    assert pacer.take_turn() == 1 * MS
    assert done == []
    clock.advance_to(clock.time_ns + 1 * MS)
    assert pacer.take_turn() == TURN_NS
    assert done == [5_003 * MS]
    assert (pacer.counters.events, pacer.counters.late_events, pacer.counters.worst_late_ns) == (1, 0, 0)


def test_a_late_event_has_its_own_time_and_is_counted(fabric: VirtualFabric, clock: VirtualClock) -> None:
    pacer, done = Pacer.of(fabric, clock), list[int]()
    fabric.call_after(3 * MS, lambda: done.append(fabric.now_ns))
    clock.advance_to(clock.time_ns + 53 * MS)
    pacer.take_turn()
    assert done == [5_003 * MS]
    assert pacer.counters.late_events == 1
    # Close ones are counted together, with the smallest lateness.
    assert 49 * MS <= pacer.counters.worst_late_ns <= 50 * MS
    assert pacer.counters.slipped_ns == 0
    assert pacer.behind_ns == 0


def test_what_cannot_be_made_up_for_is_given_up(fabric: VirtualFabric, clock: VirtualClock) -> None:
    """A fabric whose events each take a second of real time."""
    pacer = Pacer.of(fabric, clock)

    def slow() -> None:
        clock.advance_to(clock.time_ns + 1_000 * MS)
        fabric.call_after(10 * MS, slow)

    fabric.call_after(0, slow)
    for _ in range(5):
        clock.advance_to(clock.time_ns + 1)
        pacer.take_turn()
        assert pacer.behind_ns <= MOST_BEHIND_NS
    assert pacer.counters.slipped_ns > 3_000 * MS
    assert pacer.offset_ns + fabric.now_ns + pacer.behind_ns == clock.time_ns


def test_hosts_leave_packets_out_while_the_fabric_is_behind(fabric: VirtualFabric) -> None:
    behind_ns, counters = [0], TrafficCounters()
    traffic = VirtualTraffic(fabric, lambda: behind_ns[0], counters)
    flow = flow_between(fabric.topology, 1, "h1", "h2", 8_000_000, arrivals=Arrivals.CONSTANT, start_ns=fabric.now_ns)
    traffic.start((Demand("h1", flow),))
    fabric.run_until(fabric.now_ns + 10 * MS - 1)
    assert (counters.sent, counters.skipped) == (10, 0)
    behind_ns[0] = SKIP_AFTER_NS + 1
    fabric.run_until(fabric.now_ns + 10 * MS)
    assert (counters.sent, counters.skipped) == (10, 10)
    behind_ns[0] = 0
    fabric.run_until(fabric.now_ns + 10 * MS)
    assert (counters.sent, counters.skipped) == (20, 10)
