"""Reports of items that switches have added up, through the native core: read and accounted as the reference does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.counters import Count
from collectors.native.core import MOST_ITEMS
from collectors.values import JobKey
from dataplane.clock import VirtualClock
from dataplane.topology.addressing import switch_ipv4
from dataplane.wire.completion import Completion
from tests.collectors.cores import receive_together
from tests.collectors.native.test_core import Pair
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way

JOB = JobKey(3, "s2")


def item(number: int, child: int = 0, wait_us: int | None = None) -> Completion:
    return Completion(3, number, child, number if wait_us is None else wait_us, number % 3, number % 5)


def test_reports_of_items_never_leave_the_native_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come at once."""
    collector, reporter = Collector(build_topology(), VirtualClock()), Reporter()
    monkeypatch.setattr(collector, "receive", None)
    count = 2 * MOST_ITEMS + 100
    receive_together(collector, [reporter.item(12, item(number)) for number in range(count)])
    state = collector.snapshot().jobs[JOB]
    assert (state.reported, state.items) == (count, count)
    assert collector.counters[Count.ITEMS_REPORTED] == count
    assert collector.snapshot().reporters[12, 0].received == count


def test_whatever_else_comes_they_say_what_the_reference_says() -> None:
    """Many in a batch, between stacks, postcards and queues' reports; some are not only of an item."""
    pair, reporter = Pair(), Reporter()
    for batch in range(3):
        payloads = []
        for n in range(900):
            hops = long_way((1000 * batch + n) * MICRO, queue=n % 4)
            payloads.append(reporter.item(11 + n % 4, item(1000 * batch + n, n % 7)))
            match n % 50:
                case 0:
                    payloads.append(reporter.stacked(hops))
                case 1:
                    payloads += reporter.postcards(hops, mx=False, payload=n.to_bytes(2, "big"))
                case 2:
                    payloads.append(payloads[-1])
                case 3:
                    payloads.append(reporter.congested(hops[1]))
        pair.clock.advance_to(pair.clock.now_ns() + 10**9)
        pair.receive(payloads)
    assert pair.native.counters[Count.ITEMS_REPORTED] == 2025
    assert pair.native.counters[Count.UNKNOWN_REPORTER] == 675
    assert set(pair.native.snapshot().jobs) == {JobKey(3, f"s{n}") for n in (1, 2, 3)}


@given(
    st.integers(0, 4),
    st.integers(0, 0xFFFF),
    st.integers(0, 0xFFFF),
    st.booleans(),
    st.integers(0, 40) | st.just(1000),
)
@settings(max_examples=80, deadline=None)
def test_broken_and_strange_ones_are_refused_alike(
    oddity: int, domain_bits: int, status: int, version6: bool, cut: int
) -> None:
    ends = ("2001:db8::1", "2001:db8::2") if version6 else ("10.0.0.1", "10.0.0.2")
    pair, reporter = Pair(), Reporter(*ends)
    main = [{}, {"domain_bits": domain_bits}, {"domain_id": status}, {"domain_status": status}, {"domain_bits": 0x6000}]
    payload = reporter.item(12, item(7), **main[oddity])
    broken = bytearray(reporter.item(12, item(8)))
    broken[39] |= 1  # a reserved bit of the item's words
    pair.receive([payload[: len(payload) - cut] if cut < len(payload) else payload, bytes(broken), payload])


def test_the_last_child_is_who_sent_the_packet_in_the_report() -> None:
    collector, sequences = Collector(build_topology(), VirtualClock()), dict[int, int]()
    for index, src in enumerate(("10.0.0.1", str(switch_ipv4(11)), "192.0.2.7")):
        reporter = Reporter(src, sequences=sequences)
        receive_together(collector, [reporter.item(12, item(index, index, wait_us=10 - index))])
    names = [child.key.name for child in collector.snapshot().jobs[JOB].children]
    assert names == ["h1", "s1", "192.0.2.7"]
