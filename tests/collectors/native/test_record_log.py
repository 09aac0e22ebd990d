"""Hop records for subscribers out of both cores: the same records, of an even sample, and none in a backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec

from collectors.collector import Collector
from collectors.counters import Count, Counters
from collectors.decode.payloads import payloads_of
from collectors.native.core import NativeCore
from collectors.native.record_log import NativeRecordLog
from collectors.record_columns import RecordColumns
from collectors.reference.record_log import PlainRecordLog
from collectors.settings import CollectorSettings, Core
from collectors.state.record_log import PERIOD_NS, ROOM, RecordLog, mixed
from collectors.values import HopRecord, RecordKind
from dataplane.clock import VirtualClock
from dataplane.wire import report
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.report import ReportPacket
from dataplane.wire.report_group import ReportGroup
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import ALL, MICRO, Reporter, build_topology, long_way

MS = 1_000_000
S = 1_000 * MS


def collector_of(core: Core, **settings: int) -> Collector:
    chosen = msgspec.structs.replace(CollectorSettings(), core=core, **settings)
    return Collector(build_topology(), VirtualClock(S), chosen)


def mixture() -> list[bytes]:
    """Return reports of every kind, of two address families, with odd nodes, ports and values."""
    sequences = dict[int, int]()
    four, six, buffers = (
        Reporter(src_port=1, sequences=sequences),
        Reporter("2001:db8::1", "2001:db8::2", 2, sequences=sequences),
        Reporter(src_port=3, bits=0xFD80, sequences=sequences),
    )
    payloads: list[bytes] = []
    for number in range(6):
        hops = long_way(number * 100 * MICRO, queued_ns=number * MICRO, queue=number, tx_bytes=number)
        odd = [replace(hops[0], node_id=99), replace(hops[1], egress_port=77), hops[2]]
        for reporter in (four, six):
            payloads += [reporter.stacked(hops), reporter.stacked(odd), reporter.stacked(hops, exceeded=True)]
            payloads += reporter.hop_by_hop(hops, payload=bytes([number]))
            payloads += reporter.postcards(hops, mx=True, payload=bytes([number]))
            payloads += reporter.postcards(hops, mx=False, payload=bytes([number]))
            payloads += [reporter.dropped(hops[:2], DropReason.QUEUE_FULL), reporter.congested(hops[1])]
            payloads += reporter.intermediate(hops[:2], hops[2:])
        payloads.append(buffers.stacked([replace(hop, buffer=number) for hop in hops]))
        payloads.append(Reporter(src_port=4, bits=0x8A00, sequences=sequences).stacked(hops))
    individual = report.decode(four.stacked(long_way())).reports[0]
    group = ReportPacket(ReportGroup(1, 77, 13), (individual, individual)).encode()
    return [*payloads, group, group, b"junk"]


def test_both_cores_make_the_same_records() -> None:
    heard: list[list[tuple[HopRecord, ...]]] = []
    for core, singly in ((Core.REFERENCE, True), (Core.NATIVE, True), (Core.NATIVE, False)):
        collector, reports = collector_of(core), list[tuple[HopRecord, ...]]()
        collector.subscribe(reports.append)
        if singly:
            for payload in mixture():
                collector.receive(payload)
        else:
            receive_together(collector, mixture())
        heard.append(reports)
    assert sum(map(len, heard[0])) > 200
    assert {record.kind for reports in heard[0] for record in reports} == set(RecordKind)
    assert heard[0] == heard[1] == heard[2]


@every_core
def test_columns_hold_what_records_do(core: Core) -> None:
    collector, records, columns = collector_of(core), list[HopRecord](), list[RecordColumns]()
    leave = collector.subscribe_columns(columns.append)
    receive_together(collector, mixture())
    collector.hand_over_records()
    leave()
    again = collector_of(core)
    again.subscribe(records.extend)
    receive_together(again, mixture())
    [batch] = columns
    assert batch.records() == tuple(records)
    assert RecordColumns.of(records).records() == tuple(records)
    assert len(batch) == len(records)


@every_core
def test_no_records_are_made_for_nobody(core: Core) -> None:
    collector, columns = collector_of(core), list[RecordColumns]()
    receive_together(collector, mixture())
    leave = collector.subscribe_columns(columns.append)
    collector.hand_over_records()
    leave()
    receive_together(collector, [Reporter(src_port=9).stacked(long_way())])
    collector.hand_over_records()
    assert list(map(len, columns)) == [0]
    assert not collector.counters[Count.RECORDS_WITHHELD]


@every_core
def test_records_are_of_an_even_sample_of_reports(core: Core) -> None:
    """At 2,000 reports a second, 100 are taken, about as many in every tenth of a second, in whole packets."""
    clock, columns = VirtualClock(S), list[RecordColumns]()
    collector = Collector(build_topology(), clock, CollectorSettings(core=core, records_reports_per_s=100))
    collector.subscribe_columns(columns.append)
    reporter, taken = Reporter(), list[int]()
    for step in range(60):
        clock.advance_to(S + step * PERIOD_NS // 2)
        payloads = [reporter.stacked(long_way((step * 100 + n) * MICRO)) for n in range(100)]
        receive_together(collector, payloads)
        collector.hand_over_records()
        rows = columns.pop()
        assert set(Counter(rows.columns["sequence"]).values()) <= {3}
        taken.append(len(rows) // 3)
    steady = taken[20:]
    assert 60 <= sum(steady) / (len(steady) * PERIOD_NS / 2 / S) <= 100
    assert sum(count > 0 for count in steady) > 0.8 * len(steady)
    assert collector.counters[Count.RECORDS_WITHHELD] == 60 * 100 - sum(taken)


@every_core
def test_hops_that_report_singly_are_taken_by_packet(core: Core) -> None:
    clock, columns = VirtualClock(S), list[RecordColumns]()
    collector = Collector(build_topology(), clock, CollectorSettings(core=core, records_reports_per_s=600))
    collector.subscribe_columns(columns.append)
    reporter = Reporter(bits=ALL)
    for step in range(20):
        clock.advance_to(S + step * PERIOD_NS)
        payloads: list[bytes] = []
        for number in range(40):
            reporter.number = step * 40 + number
            payloads += reporter.hop_by_hop(long_way(number * 100 * MICRO), payload=bytes([step, number]))
        receive_together(collector, payloads)
        collector.hand_over_records()
    late = columns[5:]
    by_packet = Counter(number for batch in late for number in batch.columns["packet_id"])
    assert len(by_packet) > 100
    # Those that the budget's end has cut apart are few.
    assert sum(hops == 3 for hops in by_packet.values()) > 0.95 * len(by_packet)


@every_core
def test_a_smaller_subscription_is_a_sample_of_the_larger(core: Core) -> None:
    clock, all_of_it, some = VirtualClock(S), list[RecordColumns](), list[RecordColumns]()
    collector = Collector(build_topology(), clock, CollectorSettings(core=core))
    collector.subscribe_columns(all_of_it.append)
    collector.subscribe_columns(some.append, 50)
    reporter = Reporter()
    for step in range(30):
        clock.advance_to(S + step * PERIOD_NS)
        receive_together(collector, [reporter.stacked(long_way((step * 50 + n) * MICRO)) for n in range(50)])
        collector.hand_over_records()
    everything, sample = (
        [record for batch in batches[5:] for record in batch.records()] for batches in (all_of_it, some)
    )
    assert len(everything) == 25 * 50 * 3
    assert set(sample) < set(everything)
    assert not collector.counters[Count.RECORDS_WITHHELD]
    assert 0.06 < len(sample) / len(everything) < 0.14


@every_core
def test_reports_leave_no_records_while_reading_is_behind(core: Core) -> None:
    collector, heard = collector_of(core), list[tuple[HopRecord, ...]]()
    collector.subscribe(heard.append)
    reporter = Reporter()
    waiting = [reporter.stacked(long_way(n * MICRO)) for n in range(5)]
    collector.receive_many(replace(payloads_of(waiting), age_ns=S, is_behind=True))
    assert (len(heard), collector.counters[Count.RECORDS_SHED]) == (0, 5)
    assert collector.counters[Count.RECORDS] == 15  # the basis of the state
    receive_together(collector, [reporter.stacked(long_way(n * MICRO)) for n in range(5)])
    assert len(heard) == 5


def logs() -> Sequence[tuple[RecordLog, Counters]]:
    counters = Counters(), Counters()
    core = collector_of(Core.NATIVE)._native
    assert isinstance(core, NativeCore)
    return [
        (PlainRecordLog(counters[0]), counters[0]),
        (NativeRecordLog(core.store, counters[1]), core._counters + counters[1]),
    ]


def test_both_logs_choose_the_same_reports() -> None:
    (plain, _), (native, _) = logs()
    for log in (plain, native):
        log.want(300, is_capped=True)
    now_ns, chosen = S, 0
    for number in range(20_000):
        now_ns += (1, 100_000, 5_000_000)[number // 100 % 3]
        if number % 7_000 == 6_999:
            now_ns -= 2 * PERIOD_NS  # the clock was set back
        for log in (plain, native):
            log.say_behind(number % 1000 < 20)
        choice = mixed(number)
        answers = plain.choose(choice, now_ns), native.choose(choice, now_ns)
        assert answers[0] == answers[1]
        chosen += answers[0]
    assert 1000 < chosen < 19_000


@every_core
def test_a_log_that_nobody_empties_is_bounded_and_counts(core: Core) -> None:
    collector, columns = collector_of(core, records_reports_per_s=100_000), list[RecordColumns]()
    collector.subscribe_columns(columns.append)
    reporter, reports = Reporter(), ROOM // 3 + 10
    receive_together(collector, [reporter.stacked(long_way(n * MICRO)) for n in range(reports)])
    collector.hand_over_records()
    assert [len(batch) for batch in columns] == [ROOM // 3 * 3]
    assert collector.counters[Count.RECORDS_WITHHELD] == 10


def test_choices_are_spread_evenly() -> None:
    choices = sorted(mixed(node << 32 | number) for node in range(10) for number in range(1000))
    assert max(later - earlier for earlier, later in pairwise(choices)) < (1 << 32) // 700


@every_core
def test_a_sample_that_was_asked_for_withholds_nothing(core: Core) -> None:
    collector, columns = collector_of(core), list[RecordColumns]()
    collector.subscribe_columns(columns.append, 10)
    reporter = Reporter()
    receive_together(collector, [reporter.stacked(long_way(n * MICRO)) for n in range(50)])
    counters = collector.counters
    assert (counters[Count.RECORDS_NOT_SAMPLED], counters[Count.RECORDS_WITHHELD]) == (40, 0)
