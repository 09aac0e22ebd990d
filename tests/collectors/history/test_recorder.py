"""The history of a collector that runs: every interval, events and drops with it, failures counted, an orderly end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import HistoryError
from collectors.history.downsample import Halt
from collectors.history.files import listing
from collectors.history.recorder import HistoryRecorder
from collectors.history.retention import HistoryKeeper
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from collectors.values import DropRecord, Event, Phase
from dataplane.clock import VirtualClock
from tests.collectors.history.samples import FLOW, LINK, NOON_S, S_NS, query_rows
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.waiting import finish_within, until, wait_until


class Wall:
    """UNIX time that advances by a second at each reading."""

    def __init__(self) -> None:
        self.now_ns = NOON_S * S_NS

    def __call__(self) -> int:
        self.now_ns += S_NS
        return self.now_ns


def recorder(folder: Path, collector: Collector, problems: list[str]) -> HistoryRecorder:
    settings = HistorySettings(folder=str(folder), interval_ns=1_000_000)
    return HistoryRecorder(collector, build_topology(), settings, Wall(), problems.append)


def collecting() -> Collector:
    collector = Collector(build_topology(), VirtualClock())
    collector.receive(Reporter().stacked(long_way()))
    return collector


def run_until(history: HistoryRecorder, reached: Callable[[], Awaitable[bool]]) -> None:
    async def scenario() -> None:
        running = asyncio.create_task(history.run())
        await until(reached)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(finish_within(scenario(), 20))


def rows_in(folder: Path, table: str, least: int) -> Callable[[], Awaitable[bool]]:
    async def reached() -> bool:
        return bool(query_rows(folder, f"select count(*) >= {least} from {table}")[0][0])

    return reached


def test_every_interval_is_written_and_stopping_completes_files(tmp_path: Path) -> None:
    history = recorder(tmp_path, collecting(), problems := list[str]())
    run_until(history, rows_in(tmp_path, "reporters", 3))
    assert problems == []
    assert listing(tmp_path / "links").journals == ()
    assert query_rows(tmp_path, "select sum(received), sum(lost) from reporters") == [(1, 0)]
    assert query_rows(tmp_path, "select increase from counters where name = 'records'") == [(3,)]
    assert query_rows(tmp_path, "select distinct switches from paths") == [(["s1", "s2", "s3"],)]
    median = "select delay_quantile(delay_sketch, 0.5) from links where src = 's1' and dst = 's2'"
    assert query_rows(tmp_path, median)[0][0] == pytest.approx(7000, rel=1 / 128)
    HistoryWriter(HistorySettings(folder=str(tmp_path))).close()


def test_sketches_are_left_out_where_the_settings_say_so(tmp_path: Path) -> None:
    settings = HistorySettings(folder=str(tmp_path), sketches=False)
    history = HistoryRecorder(collecting(), build_topology(), settings, Wall(), pytest.fail)
    history.record()
    history.close()
    assert query_rows(tmp_path, "select count(*) > 0, count(delay_sketch) from links") == [(True, 0)]


def test_events_and_drops_are_written_once(tmp_path: Path) -> None:
    history = recorder(tmp_path, collecting(), [])
    history.add_events([Event(0, "slow", LINK, "delay_p99_ns", 5.0, 4.0, Phase.RAISED)])
    history.add_drops([DropRecord(0, 11, 1, 11, 1, 2, 0, 9, FLOW)] * 2)
    run_until(history, rows_in(tmp_path, "reporters", 3))
    assert query_rows(tmp_path, "select rule, subject, phase from events") == [("slow", "s1->s2", "raised")]
    assert query_rows(tmp_path, "select node, egress_port, src_host, packets from drops") == [("s1", 2, "h1", 2)]


def test_what_cannot_be_written_is_counted_and_told_once(tmp_path: Path) -> None:
    collector = collecting()
    history = recorder(tmp_path, collector, problems := list[str]())
    (tmp_path / "links").rmdir()

    async def failed_twice() -> bool:
        return collector.counters[Count.HISTORY_FAILED] >= 2

    run_until(history, failed_twice)
    assert [problem for problem in problems if "cannot be created" in problem] == [problems[0]]
    assert query_rows(tmp_path, "select count(*) > 1 from reporters") == [(True,)]


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    first = recorder(tmp_path, collecting(), [])
    with pytest.raises(HistoryError, match="another collector"):
        recorder(tmp_path, collecting(), [])
    first.close()


def test_the_end_does_not_wait_for_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, halts = threading.Event(), list[Halt]()

    def tidy(keeper: HistoryKeeper, _: int) -> None:
        begun.set()
        wait_until(lambda: keeper.halt.asked)
        halts.append(keeper.halt)

    async def has_begun() -> bool:
        return begun.is_set()

    monkeypatch.setattr(HistoryKeeper, "tidy", tidy)
    run_until(recorder(tmp_path, collecting(), []), has_begun)
    assert halts
    assert query_rows(tmp_path, "select count(*) > 0 from links") == [(True,)]
