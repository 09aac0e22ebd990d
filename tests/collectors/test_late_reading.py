"""Reports that waited unread in the socket: they count as of their arrival, by the kernel's timestamps."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from collectors.collector import Collector
from collectors.decode.payloads import payloads_of
from collectors.ingest.report_sources import SocketSource
from collectors.native.receive_state import LATE_NS
from collectors.receive_clock import ReceiveClock
from collectors.settings import CollectorSettings, Core
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from tests.collectors.cores import every_core
from tests.collectors.reports import Reporter, build_topology, long_way

MS = 1_000_000
S = 1_000 * MS
LINK = LinkKey("s1", "s2")


class Socket:
    """A source of reports on loopback with manual clocks; the kernel stamps real time."""

    def __init__(self) -> None:
        self.clock, self.wall_ahead_ns = VirtualClock(1000 * S), 0
        self.source = SocketSource("127.0.0.1", 0, 1 << 20, self.clock, lambda: time.time_ns() + self.wall_ahead_ns)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, count: int) -> None:
        for _ in range(count):
            self._sender.sendto(bytes(40), ("127.0.0.1", self.source.udp_port))

    def stand_still(self, span_ns: int) -> None:
        """Let time go by, for everything but the kernel."""
        self.clock.advance_to(self.clock.now_ns() + span_ns)
        self.wall_ahead_ns += span_ns

    def read(self) -> list[tuple[int, int]]:
        """Return how many payloads came at once, and how old they were said to be."""
        return [(len(payloads), payloads.age_ns) for payloads in self.source.read(1 << 20)]

    def close(self) -> None:
        self._sender.close()
        self.source.close()


@pytest.fixture
def late() -> Iterator[Socket]:
    made = Socket()
    yield made
    made.close()


def test_what_is_read_at_once_has_no_age_and_comes_in_one_piece(late: Socket) -> None:
    late.send(100)
    assert late.read() == [(100, 0)]
    late.stand_still(3 * S)
    late.send(1)
    late.wall_ahead_ns -= 3 * S  # it came after the time that went by
    assert late.read() == [(1, 0)]


def test_what_waited_is_as_old_as_the_kernel_says(late: Socket) -> None:
    late.send(300)
    late.stand_still(12 * S)
    ages = late.read()
    assert sum(count for count, _ in ages) == 300
    assert all(12 * S <= age < 13 * S for _, age in ages)
    assert len(ages) < 20  # those of one moment are soon read together
    late.send(5)
    assert late.read() == [(5, 0)]


@pytest.mark.parametrize(("step_ns", "age_ns"), [(3600 * S, 2 * S), (-3600 * S, 0)])
def test_wall_clock_step_never_predates_the_previous_read(late: Socket, step_ns: int, age_ns: int) -> None:
    late.read()
    late.send(10)
    late.stand_still(2 * S)
    late.wall_ahead_ns += step_ns
    assert {age for _, age in late.read()} == {age_ns}


def test_a_shorter_wait_than_anybody_minds_is_none(late: Socket) -> None:
    late.send(10)
    late.stand_still(LATE_NS)
    assert late.read() == [(10, 0)]


def test_the_clock_goes_back_no_further_than_it_went_before() -> None:
    base = VirtualClock(100)
    clock = ReceiveClock(base)
    base.advance_to(200)
    with clock.set_back(500):
        assert clock.now_ns() == 100
    with clock.set_back(50):
        assert clock.now_ns() == 150
    with clock.set_back(90):
        assert clock.now_ns() == 150
    assert clock.now_ns() == 200


@every_core
def test_figures_are_as_old_as_what_they_were_measured_by(core: Core) -> None:
    clock = VirtualClock(100 * S)
    collector, reporter = Collector(build_topology(), clock, CollectorSettings(core=core)), Reporter()
    clock.advance_to(130 * S)
    for age_s in (10, 9, 8, 2):
        payloads = payloads_of([reporter.stacked(long_way(130 * S - age_s * S))])
        collector.receive_many(replace(payloads, age_ns=age_s * S))
    snapshot = collector.snapshot()
    assert snapshot.taken_ns == 130 * S
    assert [path.age_ns for path in snapshot.paths.values()] == [2 * S]
    assert snapshot.links[LINK].age_ns == 2 * S
    clock.advance_to(132 * S)
    assert (
        collector.snapshot().links[LINK].age_ns == 4 * S
    )  # too old to be believed: the nominal figures, with their age
    assert collector.snapshot().links[LINK].samples == 0
