"""Signs that the network has changed, read out of reports by both cores."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from collectors.collector import Collector
from collectors.settings import CollectorSettings, Core
from collectors.values import NetworkSignals
from dataplane.clock import VirtualClock
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way

NOTHING = NetworkSignals()


@pytest.fixture
def reporter() -> Reporter:
    return Reporter()


def collector_of(core: Core) -> Collector:
    return Collector(build_topology(), VirtualClock(), msgspec.structs.replace(CollectorSettings(), core=core))


def seen(core: Core, payloads: list[bytes]) -> NetworkSignals:
    """Return what tells of a change, growth aside: whether reports are read natively or in Python is all the same."""
    together, singly = collector_of(core), collector_of(core)
    receive_together(together, payloads)
    for payload in payloads:
        singly.receive(payload)
    taken = together.take_signals()
    assert taken == singly.take_signals()
    assert together.take_signals() == NOTHING
    return replace(taken, grown={})


@every_core
@pytest.mark.parametrize("form", ["stacked", "hop by hop", "MX", "XD", "intermediate"])
def test_the_longest_queue_between_switches_is_kept(core: Core, form: str, reporter: Reporter) -> None:
    payloads: list[bytes] = []
    for number, queue in enumerate((3, 7, 0, 5)):
        hops, payload = long_way(number * MICRO, queue=queue), bytes([number])
        match form:
            case "stacked":
                payloads += [reporter.stacked(hops)]
            case "hop by hop":
                payloads += reporter.hop_by_hop(hops, payload=payload)
            case "intermediate":
                payloads += reporter.intermediate(hops[:2], hops[2:])
            case _:
                payloads += reporter.postcards(hops, mx=form == "MX", payload=payload)
    assert seen(core, payloads) == NetworkSignals(queue_frames=7)


@every_core
def test_a_queue_towards_a_host_is_no_sign(core: Core, reporter: Reporter) -> None:
    first, second, third = long_way()
    way = [first, second, replace(third, queue=50)]
    assert seen(core, [reporter.stacked(way)]) == NetworkSignals(queue_frames=0)


@every_core
def test_packets_that_say_nothing_of_queues_are_no_sign(core: Core) -> None:
    assert seen(core, [Reporter(bits=0xCC00).stacked(long_way(queue=9))]) == NOTHING


@every_core
@pytest.mark.parametrize(("hop", "is_inner"), [(1, True), (2, False)])
def test_only_queues_between_switches_are_signs(core: Core, hop: int, is_inner: bool, reporter: Reporter) -> None:
    taken = seen(core, [reporter.congested(long_way()[hop])])
    assert taken == NetworkSignals(queue_frames=0 if is_inner else None, queue_reported=is_inner)


@every_core
@pytest.mark.parametrize("reason", [DropReason.QUEUE_FULL, DropReason.NO_ROUTE])
@pytest.mark.parametrize("hops", [2, 3])
def test_a_full_queue_between_switches_is_a_sign(core: Core, reason: DropReason, hops: int, reporter: Reporter) -> None:
    taken = seen(core, [reporter.dropped(long_way()[:hops], reason)])
    assert taken.queue_full is (hops == 2 and reason is DropReason.QUEUE_FULL)


@every_core
@pytest.mark.parametrize("natively", [True, False])
def test_growth_is_noted_of_stacks_and_first_hops(core: Core, natively: bool) -> None:
    collector, sequences = collector_of(core), dict[int, int]()
    stacked, single, cards = (Reporter(src_port=port, sequences=sequences) for port in (1, 2, 3))
    payloads: list[bytes] = []
    for number in range(10):
        hops = long_way(number * 100 * MICRO)
        payloads += [stacked.stacked(hops), *single.hop_by_hop(hops, payload=bytes([number]))]
        payloads += cards.postcards(hops, mx=True, payload=bytes([number]))
    if natively:
        receive_together(collector, payloads)
    else:
        for payload in payloads:
            collector.receive(payload)
    grown = collector.take_signals().grown
    assert grown == {stacked.flow: pytest.approx(10_000), single.flow: pytest.approx(10_000)}
    paths = collector.snapshot().paths
    assert [paths[reporter.flow].gap_mean_ns for reporter in (stacked, single, cards)] == [
        100 * MICRO,
        100 * MICRO,
        None,
    ]
    assert paths[stacked.flow].gap_variation < 0.2
