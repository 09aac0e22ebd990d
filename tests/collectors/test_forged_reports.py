"""Effects of single forged reports on a switch's figures, whichever core takes them and however: none that lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collector import Collector
from collectors.settings import CollectorSettings, Core
from collectors.values import LinkState
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire.report import decode
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import Reporter, build_topology, long_way

MS = 1_000_000
LINK = LinkKey("s1", "s2")
REPORTER = 13, 0

Give = Callable[[Collector, list[bytes]], None]


def one_by_one(collector: Collector, payloads: list[bytes]) -> None:
    for payload in payloads:
        collector.receive(payload)


every_way = pytest.mark.parametrize("give", [one_by_one, receive_together])


@cache
def payload_of(stamp_ns: int, sequence: int) -> bytes:
    """Return a report with such stamps and such a number, made once: most tests here send the same ones."""
    return Reporter().stacked(long_way(stamp_ns), sequence=sequence)


class Bench:
    """A switch that reports every 10 ms, and a forger of its reports."""

    def __init__(self, core: Core, give: Give) -> None:
        self.clock = VirtualClock(1000 * MS)
        self.collector = Collector(build_topology(), self.clock, CollectorSettings(core=core))
        self._give = give

    def report(self, count: int, first: int = 0) -> None:
        """Have the sink number its next reports from `first` on, and stamp them with the current time."""
        for number in range(first, first + count):
            self._give(self.collector, [payload_of(self.clock.now_ns(), number % 2**22)])
            self.clock.advance_to(self.clock.now_ns() + 10 * MS)

    def forge(self, sequence: int, ahead_ns: int = 0) -> None:
        """Send one report in the sink's name, with such a number and such stamps."""
        self._give(self.collector, [payload_of(self.clock.now_ns() + ahead_ns, sequence)])

    def link(self) -> LinkState:
        return self.collector.snapshot().links[LINK]


@every_core
@every_way
@pytest.mark.parametrize("ahead", [1024, 65_537, 2**21 - 1])
def test_one_number_far_ahead_silences_no_switch(core: Core, give: Give, ahead: int) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.report(20, first=5000)
    bench.forge(5020 + ahead)
    for side in (bench, calm):
        side.report(60, first=5020)
    observed, truth = (side.collector.snapshot().reporters[REPORTER] for side in (bench, calm))
    assert replace(observed, late=0) == truth
    assert observed.late <= 1
    assert (bench.link().samples, bench.link().age_ns) == (calm.link().samples, calm.link().age_ns)
    assert bench.collector.status().counters["records"] == calm.collector.status().counters["records"] + 3


@every_core
@every_way
@pytest.mark.parametrize("ahead", [0, 1, 40, 1023])
def test_a_number_that_was_forged_throws_away_no_measurement(core: Core, give: Give, ahead: int) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.report(20, first=5000)
    bench.forge(5019 + ahead, ahead_ns=3 * MS)
    for side in (bench, calm):
        side.report(ahead + 10, first=5020)
    counters, truth = bench.collector.status().counters, calm.collector.status().counters
    assert counters["records"] == truth["records"] + 3
    assert "repeated" not in counters
    assert counters["contested"] == 1
    observed, right = (side.collector.snapshot().reporters[REPORTER] for side in (bench, calm))
    assert replace(observed, late=0, contested=0) == right
    assert observed.contested == 1


@every_core
@every_way
def test_what_the_network_doubles_is_measured_once(core: Core, give: Give) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for number in range(200):
        payload = payload_of(bench.clock.now_ns(), number)
        give(bench.collector, [payload, payload])
        give(calm.collector, [payload])
    assert bench.collector.status().counters["repeated"] == 200
    assert bench.collector.status().counters["records"] == calm.collector.status().counters["records"]
    observed, right = (side.collector.snapshot().reporters[REPORTER] for side in (bench, calm))
    assert observed == replace(right, duplicate=200)


@every_core
@every_way
def test_a_pair_of_numbers_far_ahead_costs_no_measurement(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.report(20, first=5000)
    bench.forge(9000)
    bench.forge(9001)
    bench.report(50, first=5020)
    assert bench.collector.status().counters["records"] == 72 * 3
    assert bench.collector.snapshot().reporters[REPORTER].restarts == 1


@every_core
@every_way
@pytest.mark.parametrize("ahead_ms", [260, 600, 2900, 3100, 3_600_000])
def test_one_stamp_far_ahead_makes_no_sample_late(core: Core, give: Give, ahead_ms: int) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.report(20)
    bench.forge(20, ahead_ms * MS)
    for side in (bench, calm):
        side.report(60, first=21 if side is bench else 20)
    assert "late samples" not in bench.collector.status().counters
    assert (bench.link().samples, bench.link().age_ns) == (calm.link().samples, calm.link().age_ns)
    assert [path.age_ns for path in bench.collector.snapshot().paths.values()] == [
        path.age_ns for path in calm.collector.snapshot().paths.values()
    ]


@every_core
@every_way
def test_one_stamp_far_behind_makes_no_sample_ahead(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.clock.advance_to(10_000 * MS)
    bench.report(20)
    bench.forge(20, -4000 * MS)
    bench.report(60, first=21)
    bench.forge(81, 200 * MS)
    bench.report(30, first=82)
    assert "late samples" not in bench.collector.status().counters


@every_core
@every_way
def test_many_stamps_ahead_do_not_outweigh_those_that_are_right(core: Core, give: Give) -> None:
    bench, sequence = Bench(core, give), 0
    for _ in range(60):
        bench.report(1, first=sequence)
        for more in range(1, 6):
            bench.forge(sequence + more, (100 + 400 * more) * MS)
        sequence += 6
    assert "late samples" not in bench.collector.status().counters


@every_core
@every_way
@pytest.mark.parametrize("ahead_ms", [600, 1000, 2900, -1000, 90_000])
def test_early_forged_stamps_make_no_sample_late(core: Core, give: Give, ahead_ms: int) -> None:
    """The first says how the clock stands, and one every 400 ms keeps that alive: it made all genuine ones late."""
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.clock.advance_to(10_000 * MS)
    for number in range(60):
        if number % 40 == 0:
            bench.forge(5000 + number, ahead_ms * MS)
        for side in (bench, calm):
            side.report(1, first=number)
    forged = 6 if ahead_ms < 0 else 0  # which may be late themselves
    assert bench.collector.counters["late samples"] <= forged
    assert bench.link().age_ns == calm.link().age_ns
    assert bench.link().samples >= calm.link().samples


@every_core
@every_way
def test_many_stamps_of_one_datagram_are_one_opinion(core: Core, give: Give) -> None:
    """Hundreds of hops of every switch, all as far ahead, are no more than one report."""
    bench, calm = Bench(core, give), Bench(core, give)
    packet = decode(payload_of(bench.clock.now_ns() + 1000 * MS, 7000))
    give(bench.collector, [replace(packet, reports=packet.reports * 84).encode()])
    for each in (bench, calm):
        each.report(60)
    assert "late samples" not in bench.collector.status().counters
    assert (bench.link().samples, bench.link().age_ns) == (calm.link().samples, calm.link().age_ns)


@every_core
@every_way
@pytest.mark.parametrize(("bits", "hops"), [(0x8C00, 50), (0x8000, 250)], ids=["stamps", "names alone"])
def test_the_tallest_stack_blinds_nobody(core: Core, give: Give, bits: int, hops: int) -> None:
    """As many hops of all switches as a shim can say, each stamped as far ahead as it may be."""
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.report(20)
    for number in range(3):
        ahead = long_way(bench.clock.now_ns() + 2900 * MS) * 100
        give(bench.collector, [Reporter(bits=bits).stacked(ahead[: hops - 1] + ahead[2:3], sequence=7000 + number)])
    for side in (bench, calm):
        side.report(60, first=20)
    assert "late samples" not in bench.collector.status().counters
    assert (bench.link().samples, bench.link().age_ns) == (calm.link().samples, calm.link().age_ns)


@every_core
@every_way
def test_two_stamps_ahead_in_a_pause_do_not_set_the_clock(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.report(60)
    bench.forge(60, 1000 * MS)
    bench.clock.advance_to(bench.clock.now_ns() + 550 * MS)
    bench.forge(61, 1550 * MS)
    bench.report(60, first=62)
    assert "late samples" not in bench.collector.status().counters


@every_core
@every_way
def test_disagreeing_stamps_set_no_clock_during_a_pause(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.report(60)
    for number in range(10):
        bench.forge(60 + number, (1000 + 900 * (number % 2)) * MS)
        bench.clock.advance_to(bench.clock.now_ns() + 100 * MS)
    bench.report(60, first=70)
    assert "late samples" not in bench.collector.status().counters


@every_core
@every_way
@pytest.mark.parametrize("set_ms", [-5000, 700, 3000])
def test_set_clock_is_followed_once_several_reports_agree(core: Core, give: Give, set_ms: int) -> None:
    bench = Bench(core, give)
    bench.clock.advance_to(10_000 * MS)
    bench.report(60)
    for number in range(60, 180):
        bench.forge(number, set_ms * MS)
        bench.clock.advance_to(bench.clock.now_ns() + 10 * MS)
    before = bench.collector.counters["late samples"]
    bench.forge(180, (set_ms - 800) * MS)
    assert bench.collector.counters["late samples"] > before, "a report that is late by the clock as it was set"


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 2**22 - 1), st.integers(0, 29)), max_size=30), st.integers(0, 2**22 - 1))
def test_forged_numbers_discard_no_measurement(forged: list[tuple[int, int]], first: int) -> None:
    for core in Core:
        bench = Bench(core, receive_together)
        for number in range(30):
            for order, (sequence, at) in enumerate(forged):
                if at == number:
                    bench.forge(sequence, order + 1)
            bench.report(1, first=first + number)
        counters = bench.collector.status().counters
        assert counters["records"] == 3 * (30 + len(forged))
        assert "repeated" not in counters


_WAITS_MS = st.sampled_from([0, 0, 1, 7, 63, 130, 400, 900])
_LEADS_MS = st.sampled_from([0, 0, 0, -1, 40, 249, 251, -300, 501, -502, 2900, -2900, 3100, -3100, 90_000])


@settings(max_examples=30)
@given(st.lists(st.tuples(_WAITS_MS, _LEADS_MS, st.integers(1, 4)), max_size=40), st.booleans())
def test_stamps_that_jump_do_the_same_to_both_cores(events: list[tuple[int, int, int]], synchronised: bool) -> None:
    clock, reporter = VirtualClock(100_000 * MS), Reporter()
    topology = build_topology(synchronised)
    plain, native = (Collector(topology, clock, CollectorSettings(core=core)) for core in (Core.REFERENCE, Core.NATIVE))
    for wait_ms, lead_ms, count in events:
        clock.advance_to(clock.now_ns() + wait_ms * MS)
        sent = [reporter.stacked(long_way(clock.now_ns() + lead_ms * MS, queued_ns=at)) for at in range(count)]
        one_by_one(plain, sent)
        receive_together(native, sent)
        assert native.status().counters == plain.status().counters
        observed, truth = native.snapshot(), plain.snapshot()
        assert dict(observed.links.items()) == dict(truth.links.items())
        assert dict(observed.paths.items()) == dict(truth.paths.items())
