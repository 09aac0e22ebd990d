"""Signals that make a round due, and the gaps between rounds."""

from __future__ import annotations

from itertools import pairwise

import pytest

from collectors.values import NetworkSignals
from controller.network.paths.deciding.signals import LEAST_GAP_NS, Signals
from tests.controller.network.paths.service.addresses import flow_key

MS = 1_000_000
QUEUED = NetworkSignals(queue_frames=9)
GROWN = NetworkSignals(grown={flow_key(): 100.0})


def observe(signals: Signals, seen: NetworkSignals, now_ns: int, *, outgrows: bool = False) -> bool:
    return signals.observe(seen, now_ns, lambda grown: bool(grown) and outgrows)


@pytest.fixture
def signals() -> Signals:
    """Return a trigger for queues of 4 frames or more."""
    return Signals(queue_frames=4.0, interval_ns=100 * MS)


def test_a_long_queue_makes_a_round_due_and_a_short_one_does_not(signals: Signals) -> None:
    assert not observe(signals, NetworkSignals(), 0)
    assert not observe(signals, NetworkSignals(queue_frames=3), 0)
    assert observe(signals, NetworkSignals(queue_frames=4), 0)


@pytest.mark.parametrize("seen", [NetworkSignals(queue_reported=True), NetworkSignals(queue_full=True)])
def test_reports_of_congestion_make_a_round_due(signals: Signals, seen: NetworkSignals) -> None:
    assert observe(signals, seen, 0)
    assert not observe(signals, seen, LEAST_GAP_NS)  # the gap has doubled
    assert observe(signals, seen, 2 * LEAST_GAP_NS)


def test_flows_that_outgrow_a_link_make_a_round_due(signals: Signals) -> None:
    assert not observe(signals, GROWN, 0, outgrows=False)
    assert observe(signals, GROWN, 0, outgrows=True)
    assert not observe(signals, GROWN, LEAST_GAP_NS, outgrows=True)  # the gap has doubled
    assert observe(signals, GROWN, 2 * LEAST_GAP_NS, outgrows=True)
    assert signals.woken == 2


def test_rounds_are_fewer_while_nothing_moves_but_never_too_few(signals: Signals) -> None:
    due = []
    for now_ns in range(0, 5000 * MS, MS):
        if observe(signals, QUEUED, now_ns):
            due.append(now_ns)
            signals.decided(moved=False)
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert gaps[:5] == [2 * LEAST_GAP_NS, 4 * LEAST_GAP_NS, 8 * LEAST_GAP_NS, 16 * LEAST_GAP_NS, 32 * LEAST_GAP_NS]
    assert set(gaps[5:]) == {10 * 100 * MS}
    signals.decided(moved=True)
    assert observe(signals, QUEUED, due[-1] + LEAST_GAP_NS)


def test_a_queue_twice_as_long_as_those_in_vain_is_news(signals: Signals) -> None:
    for now_ns in (0, 100 * MS, 300 * MS):
        assert observe(signals, QUEUED, now_ns)
        signals.decided(moved=False)
    assert not observe(signals, NetworkSignals(queue_frames=17), 350 * MS)
    assert not observe(signals, NetworkSignals(queue_frames=18), 300 * MS + LEAST_GAP_NS - 1)
    assert observe(signals, NetworkSignals(queue_frames=18), 350 * MS)
    signals.decided(moved=False)
    assert not observe(signals, NetworkSignals(queue_frames=18), 400 * MS), "now in vain, too"


def test_queues_in_vain_are_forgotten_after_a_second(signals: Signals) -> None:
    assert observe(signals, NetworkSignals(queue_frames=400), 0)
    signals.decided(moved=False)
    assert not observe(signals, NetworkSignals(queue_frames=400), LEAST_GAP_NS)
    assert observe(signals, NetworkSignals(queue_frames=400), 1001 * MS)
