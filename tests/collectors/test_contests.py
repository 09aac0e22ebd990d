"""Messages about switches in whose name another source also reports."""

from __future__ import annotations

from ipaddress import IPv4Address

from collectors.collector import Collector
from collectors.contests import FEWEST, ContestWatch
from collectors.settings import CollectorSettings, Core
from dataplane.clock import VirtualClock
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import Reporter, build_topology, long_way

MS = 1_000_000


@every_core
def test_contested_numbers_are_told_once_when_there_are_many(core: Core) -> None:
    clock, topology, told = VirtualClock(1000 * MS), build_topology(), list[str]()
    collector = Collector(topology, clock, CollectorSettings(core=core))
    watch, genuine, forger = ContestWatch(collector, topology, told.append), Reporter(), Reporter()

    def report(first: int, count: int, forged: int) -> None:
        for number in range(first, first + count):
            payloads = [genuine.stacked(long_way(clock.now_ns()), sequence=number)]
            if number < first + forged:
                payloads.append(forger.stacked(long_way(clock.now_ns() + MS), sequence=number))
            receive_together(collector, payloads)
            clock.advance_to(clock.now_ns() + 10 * MS)

    report(1000, 50, forged=FEWEST - 1)
    watch.step()
    assert told == []
    report(1050, 50, forged=FEWEST)
    watch.step()
    watch.step()
    (line,) = told
    assert line.startswith(f"{FEWEST} reports of node 13 (s3) reuse sequence numbers of its other reports: ")


@every_core
def test_reports_from_a_wrong_source_name_the_right_one(core: Core) -> None:
    topology, told = build_topology(), list[str]()
    collector = Collector(topology, VirtualClock(), CollectorSettings(core=core))
    watch = ContestWatch(collector, topology, told.append)
    for _ in range(2):
        collector.receive(Reporter().stacked(long_way()), address=IPv4Address("10.0.0.1"))
    watch.step()
    watch.step()
    (line,) = told
    expected = "report from 10.0.0.1 claims to be from s3, whose reports come from 10.0.13.254"
    assert line == f"2 reports were rejected: {expected}"
