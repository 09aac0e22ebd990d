"""Which records wake the decider, and how often."""

from __future__ import annotations

from itertools import pairwise

import pytest

from collectors.values import DropRecord, FlowKey, HopRecord, RecordKind
from controller.paths.deciding.signals import LEAST_GAP_NS, Signals
from dataplane.topology.families import ring
from dataplane.wire.drop_reasons import DropReason
from tests.controller.paths.service.addresses import flow_key

MS = 1_000_000
TOPOLOGY = ring(3)


def record(*, port: int, queue_frames: int | None, kind: RecordKind = RecordKind.STACK) -> HopRecord:
    """Return what a hop at s1 says."""
    return HopRecord(0, KEY, 1, 1, 0, 1, 1, 1, port, 1, 0, queue_frames, 1, 2, None, 0, kind)


KEY: FlowKey = flow_key()


@pytest.fixture
def signals() -> Signals:
    """Return what hears of queues of 4 frames or more."""
    return Signals(TOPOLOGY, queue_frames=4.0, interval_ns=100 * MS)


def ports(*, inner: bool) -> list[int]:
    """Return the ports of s1 to switches, or to hosts."""
    neighbours = TOPOLOGY.neighbours["s1"]
    return [port for port, peer in neighbours.items() if (peer.node in TOPOLOGY.switch) is inner]


def test_a_queue_between_switches_wakes_and_an_empty_one_or_a_host_s_does_not(signals: Signals) -> None:
    inner, outer = ports(inner=True)[0], ports(inner=False)[0]
    assert not signals.observe([record(port=inner, queue_frames=3), record(port=inner, queue_frames=None)], 0)
    assert not signals.observe([record(port=outer, queue_frames=9)], 0)
    assert signals.observe([record(port=inner, queue_frames=3), record(port=inner, queue_frames=4)], 0)


def test_a_report_of_a_congested_queue_wakes_whatever_it_says(signals: Signals) -> None:
    assert signals.observe([record(port=ports(inner=True)[0], queue_frames=None, kind=RecordKind.QUEUE)], 0)


def test_flows_that_outgrow_a_link_wake_and_others_do_not(signals: Signals) -> None:
    assert not signals.observe_growth(False, 0)
    assert signals.observe_growth(True, 0)
    assert not signals.observe_growth(True, LEAST_GAP_NS)  # the gap has doubled
    assert signals.observe_growth(True, 2 * LEAST_GAP_NS)
    assert signals.woken == 2


def test_a_full_queue_between_switches_wakes_and_no_other_drop_does(signals: Signals) -> None:
    inner, outer = ports(inner=True)[0], ports(inner=False)[0]

    def drop(port: int | None, reason: DropReason) -> DropRecord:
        return DropRecord(0, 1, 1, 1, 1, port, 0, reason, KEY)

    others = [drop(inner, DropReason.NO_ROUTE), drop(outer, DropReason.QUEUE_FULL), drop(None, DropReason.QUEUE_FULL)]
    assert not signals.observe_drops(others, 0)
    assert signals.observe_drops([*others, drop(inner, DropReason.QUEUE_FULL)], 0)
    assert not signals.observe_drops([drop(inner, DropReason.QUEUE_FULL)], LEAST_GAP_NS)  # the gap has doubled
    assert signals.observe_drops([drop(inner, DropReason.QUEUE_FULL)], 2 * LEAST_GAP_NS)


def test_it_wakes_less_and_less_often_while_nothing_moves_but_never_less_than_rounds_come(signals: Signals) -> None:
    queued = [record(port=ports(inner=True)[0], queue_frames=9)]
    woken = []
    for now_ns in range(0, 1000 * MS, MS):
        if signals.observe(queued, now_ns):
            woken.append(now_ns)
            signals.decided(moved=False)
    gaps = [later - earlier for earlier, later in pairwise(woken)]
    assert gaps[:3] == [2 * LEAST_GAP_NS, 4 * LEAST_GAP_NS, 100 * MS]
    assert set(gaps[3:]) == {100 * MS}
    signals.decided(moved=True)
    assert signals.observe(queued, woken[-1] + LEAST_GAP_NS)
