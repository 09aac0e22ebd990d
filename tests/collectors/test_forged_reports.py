"""What single forged reports do to a switch's figures, whichever core takes them and however: nothing that lasts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from collectors.collector import Collector
from collectors.settings import CollectorSettings, Core
from collectors.values import LinkState
from dataplane.clock import VirtualClock
from dataplane.fabric.topology import LinkKey
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


class Bench:
    """A switch that reports every 10 ms, and somebody who sends reports in its name."""

    def __init__(self, core: Core, give: Give) -> None:
        self.clock = VirtualClock(1000 * MS)
        self.collector = Collector(build_topology(), self.clock, CollectorSettings(core=core))
        self._give = give
        self._genuine, self._forger = Reporter(), Reporter()

    def report(self, count: int, first: int = 0) -> None:
        """Have the sink number its next reports from `first` on, and stamp them with the time that it is."""
        for number in range(first, first + count):
            payload = self._genuine.stacked(long_way(self.clock.now_ns()), sequence=number % 2**22)
            self._give(self.collector, [payload])
            self.clock.advance_to(self.clock.now_ns() + 10 * MS)

    def forge(self, sequence: int, ahead_ns: int = 0) -> None:
        """Send one report in the sink's name, with such a number and such stamps."""
        self._give(self.collector, [self._forger.stacked(long_way(self.clock.now_ns() + ahead_ns), sequence=sequence)])

    def link(self) -> LinkState:
        return self.collector.snapshot().links[LINK]


@every_core
@every_way
@pytest.mark.parametrize("ahead", [1024, 65_537, 2**21 - 1])
def test_one_number_far_ahead_silences_no_switch(core: Core, give: Give, ahead: int) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for one in (bench, calm):
        one.report(20)
    bench.forge(20 + ahead)
    for one in (bench, calm):
        one.report(60, first=20)
    said, truth = (one.collector.snapshot().reporters[REPORTER] for one in (bench, calm))
    assert replace(said, late=0) == truth
    assert said.late <= 1
    assert (bench.link().samples, bench.link().age_ns) == (calm.link().samples, calm.link().age_ns)
    assert bench.collector.status().counters["records"] == calm.collector.status().counters["records"] + 3


@every_core
@every_way
def test_a_pair_of_numbers_far_ahead_costs_no_measurement(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.report(20)
    bench.forge(5000)
    bench.forge(5001)
    bench.report(50, first=20)
    assert bench.collector.status().counters["records"] == 72 * 3
    assert bench.collector.snapshot().reporters[REPORTER].restarts == 1
