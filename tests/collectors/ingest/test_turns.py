"""Turns over a real socket: the native loop and the two that Python drives take the same datagrams alike."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.ingest.report_sources import SOL_UDP, SocketSource
from collectors.ingest.turns import NativeTurns, SourceTurns, Turns
from collectors.native.receive_state import BEHIND_NS, MESSAGES, ROWS
from collectors.native.reception import Reception
from collectors.settings import CollectorSettings, Core
from collectors.values import CollectorStatus, DropRecord, HopRecord, Snapshot
from dataplane.clock import VirtualClock
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.reports import Reporter, build_topology, long_way, short_way
from tests.waiting import wait_until

MS = 1_000_000
S = 1_000 * MS
UDP_SEGMENT = 103
LOOPS = ("native", "python over the native core", "reference")
every_loop = pytest.mark.parametrize("loop", LOOPS)


class Bench:
    """A collector, a socket and turns between them; the clocks are set, what the kernel stamps is the real time."""

    def __init__(self, loop: str, *, is_prompt: bool = False, **settings: object) -> None:
        # By a clock behind the kernel's no report has waited for long, however busy this machine is.
        self.clock, self.wall_ahead_ns = VirtualClock(1000 * S), -60 * S if is_prompt else 0
        core = Core.REFERENCE if loop == "reference" else Core.NATIVE
        asked = CollectorSettings(core=core, relays=("127.0.0.1",), **settings)  # type: ignore[arg-type]
        self.collector = Collector(build_topology(), self.clock, asked)
        self.source = SocketSource("127.0.0.1", 0, 1 << 22, self.clock, self.wall_ns)
        self.reception: Reception | None = None
        self.turns = self._open_turns() if loop == "native" else SourceTurns(self.collector, self.source, 1 << 14)
        self._sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sender.bind(("127.0.0.1", 0))
        self._stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._stranger.bind(("127.0.0.2", 0))

    def _open_turns(self) -> Turns:
        self.reception = reception = self.collector.open_reception(self.source.fileno(), self.clock, self.wall_ns)
        assert reception is not None
        return NativeTurns(self.collector, reception, self.source.udp_port)

    def wall_ns(self) -> int:
        return time.time_ns() + self.wall_ahead_ns

    def send(self, payloads: Sequence[bytes], *, forged: bool = False) -> None:
        for payload in payloads:
            (self._stranger if forged else self._sender).sendto(payload, ("127.0.0.1", self.source.udp_port))

    def send_joined(self, payloads: Sequence[bytes], segment: int) -> None:
        self._sender.setsockopt(SOL_UDP, UDP_SEGMENT, segment)
        self.send([b"".join(payloads)])
        self._sender.setsockopt(SOL_UDP, UDP_SEGMENT, 0)

    def stand_still(self, span_ns: int) -> None:
        """Let time go by, for everything but the kernel."""
        self.clock.advance_to(self.clock.now_ns() + span_ns)
        self.wall_ahead_ns += span_ns

    def say_behind(self, span_ns: int) -> None:
        """Pretend that reading has been late for this long, as if the socket was never empty."""
        since_ns = self.clock.now_ns() - span_ns
        if self.reception is None:
            self.source.behind_since_ns = since_ns
        else:
            self.reception.state.behind_since_ns = since_ns

    def take(self, reports: int) -> None:
        """Take turns until this many reports were taken in total."""

        def has_come() -> bool:
            self.turns.take(waits=False)
            return self.collector.counters[Count.REPORTS] >= reports

        wait_until(has_come, f"{dict(self.collector.counters)}: not {reports} reports")

    def result(self) -> tuple[Snapshot, CollectorStatus]:
        return self.collector.snapshot(), self.collector.status()

    def close(self) -> None:
        self._sender.close()
        self._stranger.close()
        self.turns.close()
        self.source.close()


@pytest.fixture
def benches() -> Iterator[list[Bench]]:
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.close()


@pytest.fixture
def bench(loop: str, benches: list[Bench]) -> Bench:
    benches.append(Bench(loop))
    return benches[0]


def every_form(start_ns: int) -> list[bytes]:
    """Return reports of each form, those in between that only Python reads, and some that are none."""
    reporter, reports = Reporter(), []
    for number in range(40):
        hops = long_way(start_ns + number * MS, queued_ns=number * 1000, queue=number, tx_bytes=1000 * number)
        reports += [reporter.stacked(hops), reporter.stacked(short_way(start_ns + number * MS))]
        if number % 4 == 0:
            reports += reporter.postcards(hops, mx=True)
            reports += reporter.hop_by_hop(hops, payload=bytes([number]))
            reports += reporter.intermediate(hops[:2], hops[2:])
            reports += [reporter.dropped(hops, DropReason.QUEUE_FULL), reporter.congested(hops[1])]
            reports.append(reporter.item(12, Completion(3, number, 1, 5, 0, 0)))
            reports += [reports[-1], b"", b"no report", reports[0][:50], bytes(2000)]
    return reports


def comparable(bench: Bench) -> tuple[object, ...]:
    snapshot, status = bench.result()
    counters = dict(status.counters)
    problem = re.sub(r"', \d+\)", "', PORT)", status.last_problem or "")
    links, paths = dict(snapshot.links.items()), dict(snapshot.paths.items())
    return snapshot.taken_ns, links, paths, dict(snapshot.reporters), dict(snapshot.jobs), counters, problem


def test_loops_give_the_same_state_and_counters(benches: list[Bench]) -> None:
    results = []
    for loop in LOOPS:
        bench = Bench(loop, is_prompt=True)
        benches.append(bench)
        reports = every_form(bench.clock.now_ns())
        bench.send(reports)
        bench.send(reports[:20], forged=True)
        bench.take(len(reports) + 20)
        assert bench.collector.counters[Count.WRONG_SOURCE] == 20
        results.append(comparable(bench))
    assert results[0] == results[1] == results[2]


def test_loops_give_subscribers_the_same_records(benches: list[Bench]) -> None:
    results = []
    for loop in LOOPS:
        bench = Bench(loop, is_prompt=True, records_reports_per_s=10**6, python_share=1.0)
        benches.append(bench)
        records: list[HopRecord] = []
        drops: list[DropRecord] = []
        bench.collector.subscribe(records.extend)
        bench.collector.subscribe_drops(drops.extend)
        reports = every_form(bench.clock.now_ns())
        bench.send(reports)
        bench.take(len(reports))
        assert len(records) > 200
        assert len(drops) == 10
        results.append((*comparable(bench), records, drops))
    assert results[0] == results[1] == results[2]


def test_loops_shed_the_same_reports_over_the_budget(benches: list[Bench]) -> None:
    for loop in LOOPS[:2]:
        bench = Bench(loop, is_prompt=True, records_reports_per_s=10, other_reports_per_s=5)
        benches.append(bench)
        bench.collector.subscribe(lambda _: None)
        reporter = Reporter()
        bench.send([reporter.stacked(long_way(bench.clock.now_ns())) for _ in range(30)])
        bench.take(30)
        bench.send([b"only Python reads this"] * 30)
        bench.take(60)
        counters = bench.collector.counters
        assert counters[Count.RECORDS] == 30 * 3
        assert counters[Count.MALFORMED] + counters[Count.NOT_READ] == 30
        assert counters[Count.MALFORMED] == 5
        assert counters[Count.RECORDS_WITHHELD] >= 20


@every_loop
@pytest.mark.parametrize("behind_ns", [0, BEHIND_NS // 2, 2 * BEHIND_NS])
def test_records_are_shed_only_while_reading_stays_behind(bench: Bench, behind_ns: int) -> None:
    bench.collector.subscribe(lambda _: None)
    reporter = Reporter()
    bench.send([reporter.stacked(long_way(bench.clock.now_ns())) for _ in range(5)])
    bench.stand_still(2 * S)
    bench.say_behind(behind_ns)
    bench.take(5)
    shed = 5 if behind_ns > BEHIND_NS else 0
    assert bench.collector.counters[Count.RECORDS_SHED] == shed
    bench.turns.take(waits=False)
    bench.send([reporter.stacked(long_way(bench.clock.now_ns()))])
    bench.take(6)
    assert bench.collector.counters[Count.RECORDS_SHED] == shed


@pytest.mark.parametrize("loop", LOOPS[:2])
def test_joined_datagrams_span_several_turns(bench: Bench) -> None:
    """More datagrams than there are rows, the last of each message shorter."""
    report = Reporter().stacked(long_way(bench.clock.now_ns()))
    first_word, sent = int.from_bytes(report[:4], "big"), 0
    while sent <= ROWS:
        reports = [(first_word + sent + number).to_bytes(4, "big") + report[4:] for number in range(60)]
        bench.send_joined([*reports, report[:40]], len(report))
        sent += 60
    bench.send([b""])
    bench.take(sent + sent // 60 + 1)
    counters = bench.collector.counters
    assert counters[Count.RECORDS] == 3 * sent
    assert counters[Count.MALFORMED] == sent // 60 + 1
    assert counters[Count.NOT_READ] == 0


@every_loop
def test_more_messages_than_one_call_reads_are_all_taken(bench: Bench) -> None:
    reporter = Reporter()
    bench.send([reporter.stacked(long_way(bench.clock.now_ns())) for _ in range(2 * MESSAGES + 3)])
    bench.take(2 * MESSAGES + 3)
    assert bench.collector.snapshot().reporters[13, 0].received == 2 * MESSAGES + 3


@every_loop
@pytest.mark.parametrize(("waited_ns", "age_ns"), [(0, 0), (15 * MS, 0), (2 * S, 2 * S)])
def test_reports_that_waited_count_as_of_when_they_came(bench: Bench, waited_ns: int, age_ns: int) -> None:
    bench.turns.take(waits=False)
    bench.send([Reporter().stacked(long_way(bench.clock.now_ns()))])
    bench.stand_still(waited_ns)
    bench.take(1)
    (path,) = bench.collector.snapshot().paths.values()
    # The kernel's stamp is of the wall clock, which is read a moment before or after the other one.
    assert age_ns - MS <= path.age_ns < age_ns + S


@every_loop
def test_reports_stay_in_order_when_the_clock_is_set_ahead(bench: Bench) -> None:
    bench.turns.take(waits=False)
    bench.send([Reporter().stacked(long_way(bench.clock.now_ns()))])
    bench.stand_still(2 * S)
    bench.wall_ahead_ns += 3600 * S
    bench.take(1)
    (path,) = bench.collector.snapshot().paths.values()
    assert path.age_ns == 2 * S


def test_unusable_socket_is_a_clear_error(benches: list[Bench]) -> None:
    bench = Bench("native")
    benches.append(bench)
    assert isinstance(bench.turns, NativeTurns)
    port = bench.source.udp_port
    bench.source.close()
    with pytest.raises(CollectorError, match=f"cannot receive reports on UDP port {port}: Bad file descriptor"):
        bench.turns.take(waits=False)


@every_loop
def test_waiting_turn_ends_when_it_is_woken(bench: Bench) -> None:
    bench.turns.wake()
    bench.turns.take(waits=True)
    assert replace(bench.collector.status(), taken_ns=0) == CollectorStatus(0, {}, None)
