"""Captures through a collector: the capture's time, periodic work at its time, other frames ignored."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from collectors.collector import Collector
from collectors.errors import HistoryError
from collectors.events.rules import Rule, RuleSettings
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.ingest.replay import LONGEST_GAP_NS, Regularly, Replay
from collectors.process import CollectorProcessSettings
from collectors.replay_history import replay_into
from dataplane.clock import VirtualClock
from dataplane.errors import PortError
from dataplane.nic.capture.pcap import Capture, PcapWriter
from dataplane.topology.addressing import switch_ipv4
from dataplane.wire.packet import udp_frame
from tests.collectors.history.samples import query_rows
from tests.collectors.reports import MICRO, Reporter, build_topology, long_way

S_NS = 1_000_000_000
MS = 1_000_000
NOON_NS = 1_700_000_040 * S_NS
TRIANGLE = """
millrace: 1
name: triangle
collector: {host: h2}
switches: [{name: s1, id: 11}, {name: s2, id: 12}, {name: s3, id: 13}]
hosts: [{name: h1, switch: s1, port: 1, ipv4: 10.0.0.1}, {name: h2, switch: s3, port: 2, ipv4: 10.0.0.2}]
links:
  - {a: s1, a_port: 2, b: s2, b_port: 1}
  - {a: s2, a_port: 2, b: s3, b_port: 1}
  - {a: s1, a_port: 3, b: s3, b_port: 3}
"""


def frame(payload: bytes, port: int = 32766) -> bytes:
    src, dst = switch_ipv4(13), IPv4Address("10.0.0.2")
    return udp_frame(src_mac=1, dst_mac=2, src=src, dst=dst, src_port=5, dst_port=port, payload=payload)


def captured(*frames: tuple[bytes, int]) -> Iterator[Capture]:
    return (Capture(data, time_ns, len(data)) for data, time_ns in frames)


def replaying(*regularly: Regularly) -> tuple[Collector, Replay]:
    clock = VirtualClock()
    collector = Collector(build_topology(), clock)
    return collector, Replay(collector, clock, regularly)


def test_reports_are_taken_and_the_rest_is_counted() -> None:
    collector, replay = replaying()
    report = Reporter().stacked(long_way())
    damaged = bytearray(frame(report))
    damaged[-1] ^= 1
    replay.run(
        captured(
            (frame(report), NOON_NS),
            (frame(report, port=53), NOON_NS + 1),
            (bytes(damaged), NOON_NS + 2),
            (frame(report)[:30], NOON_NS + 3),
            (frame(report[:40]), NOON_NS + 4),
        )
    )
    result = replay.result
    assert (result.frames, result.reports, result.broken) == (5, 2, 2)
    assert (result.began_ns, result.ended_ns) == (NOON_NS, NOON_NS + 4)
    status = collector.status()
    assert status.counters["malformed"] == 1
    assert (status.last_problem or "").startswith("report from frame 5: ")
    replay.run(captured((frame(b"no report"), NOON_NS + 4)))
    assert collector.status().counters["wrong source"] == 1
    assert collector.status().last_problem == "report from frame 6 names a node that is not in the topology"
    assert collector.snapshot().taken_ns == NOON_NS + 4


def test_what_is_regular_is_done_at_its_times() -> None:
    done: list[int] = []
    collector, replay = replaying(Regularly(10, lambda: done.append(collector.snapshot().taken_ns - NOON_NS)))
    report = frame(Reporter().stacked(long_way()))
    replay.run(captured((report, NOON_NS), (report, NOON_NS + 25), (report, NOON_NS + 22), (report, NOON_NS + 30)))
    assert done == [10, 20, 30, 30]


def test_in_a_long_gap_nothing_is_done() -> None:
    done: list[int] = []
    collector, replay = replaying(Regularly(S_NS, lambda: done.append(collector.snapshot().taken_ns - NOON_NS)))
    report = frame(Reporter().stacked(long_way()))
    later_ns = 2 * LONGEST_GAP_NS
    replay.run(captured((report, NOON_NS), (report, NOON_NS + later_ns), (report, NOON_NS + later_ns + S_NS)))
    assert done == [later_ns + S_NS] * 2


def test_an_empty_capture_does_nothing() -> None:
    done: list[None] = []
    _, replay = replaying(Regularly(1, lambda: done.append(None)))
    replay.run(captured())
    assert done == []


def write_capture(path: Path) -> Path:
    """Write 3 s of reports, every 10 ms; in the second of them packets wait 500 us at s2."""
    reporter = Reporter()
    with PcapWriter(path) as file:
        for number in range(300):
            at_ns = NOON_NS + number * 10 * MS
            queued_ns = 500 * MICRO if 100 <= number < 200 else 0
            file.write(frame(reporter.stacked(long_way(number * 10 * MS, queued_ns))), at_ns)
    return path


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write_capture(tmp_path / "reports.pcap")


@pytest.fixture
def settings(tmp_path: Path) -> CollectorProcessSettings:
    (tmp_path / "triangle.yaml").write_text(TRIANGLE)
    slow = Rule(name="slow", figure="delay_p50_ns", above=100_000.0)
    return CollectorProcessSettings(topology=str(tmp_path / "triangle.yaml"), events=RuleSettings(rules=(slow,)))


def test_a_capture_becomes_a_history_with_events(
    capture: Path, settings: CollectorProcessSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    result, status = replay_into(folder, capture, settings, pytest.fail)
    assert (result.reports, status.counters["reports"]) == (300, 300)
    assert query_rows(folder, "select sum(received), sum(lost) from reporters") == [(300, 0)]
    slow = "select min(time), max(time) from links where src = 's2' and dst = 's3' and delay_p50_ns > 400000"
    ((first, last),) = query_rows(folder, slow)
    assert 1 <= first.timestamp() - NOON_NS / S_NS < last.timestamp() - NOON_NS / S_NS <= 2.5
    events = query_rows(folder, "select phase, subject, time from events order by time")
    assert [(phase, subject) for phase, subject, _ in events] == [("raised", "s2->s3"), ("cleared", "s2->s3")]
    assert [round(time.timestamp() - NOON_NS / S_NS) for *_, time in events] == [1, 2]


def test_a_capture_that_is_cut_gives_what_it_has(
    capture: Path, settings: CollectorProcessSettings, tmp_path: Path
) -> None:
    capture.write_bytes(capture.read_bytes()[:-7])
    problems: list[str] = []
    result, _ = replay_into(tmp_path / "history", capture, settings, problems.append)
    assert result.reports == 299
    assert [problem for problem in problems if str(capture) in problem] == problems != []


def test_what_is_no_capture_is_refused(settings: CollectorProcessSettings, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no capture at all, but long enough")
    with pytest.raises(PortError, match="text"):
        replay_into(tmp_path / "history", tmp_path / "text", settings, pytest.fail)


def test_a_history_that_another_writes_is_refused(
    capture: Path, settings: CollectorProcessSettings, tmp_path: Path
) -> None:
    writer = HistoryWriter(HistorySettings(folder=str(tmp_path / "history")))
    with pytest.raises(HistoryError, match="another collector"):
        replay_into(tmp_path / "history", capture, settings, pytest.fail)
    writer.close()
