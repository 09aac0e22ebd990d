"""Ageing of complete files: which ones are due, and that no row is lost or counted twice on the way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from collectors.history import downsample
from collectors.history.downsample import Halt
from collectors.history.files import HistoryFile, listing, name_of
from collectors.history.retention import Ages, HistoryKeeper, due_interval_ns, due_merges
from collectors.history.settings import HistorySettings, Tier
from collectors.history.writer import HistoryWriter
from tests.collectors.history.samples import NOON_S, S_NS, link, links_at, maker, query_rows

TIERS = (Tier(interval_ns=10 * S_NS, keep_ns=1000 * S_NS), Tier(interval_ns=60 * S_NS, keep_ns=5000 * S_NS))
TOTALS = "select sum(snapshots), sum(samples), sum(delay_mean_ns * samples)::bigint from links"


def keeping(folder: Path, **others: Any) -> HistorySettings:
    return HistorySettings(
        folder=str(folder),
        tiers=TIERS,
        **{
            "keep_ns": 200 * S_NS,
            "file_span_ns": 60 * S_NS,
            "merge_files": 3,
            "longest_gap_ns": 10_000 * S_NS,
            **others,
        },
    )


def file_of(number: int, end_s: int, interval_s: int = 1) -> HistoryFile:
    interval_ns = interval_s * S_NS
    return HistoryFile(Path(name_of(number, number, interval_ns, end_s)), number, number, interval_ns, end_s, 100)


@pytest.mark.parametrize(("age_s", "interval_s"), [(0, 1), (200, 1), (201, 10), (1000, 10), (1001, 60), (9999, 60)])
def test_the_interval_that_an_age_has(tmp_path: Path, age_s: int, interval_s: int) -> None:
    assert due_interval_ns(keeping(tmp_path), age_s * S_NS) == interval_s * S_NS


def due(folder: Path, now_s: int, *files: HistoryFile) -> list[tuple[int, list[int]]]:
    ages = Ages([file.end_s for file in files], now_s, 10_000)
    merges = due_merges(files, keeping(folder), ages)
    return [(interval_ns // S_NS, [file.first for file in group]) for interval_ns, group in merges]


def test_files_wait_until_there_are_enough_of_them(tmp_path: Path) -> None:
    fine = [file_of(number, 60 * number) for number in range(1, 6)]
    assert due(tmp_path, 380, *fine) == []
    assert due(tmp_path, 381, *fine) == [(10, [1, 2, 3])]
    assert due(tmp_path, 501, *fine) == [(10, [1, 2, 3])]
    assert due(tmp_path, 300 + 200 + 180 + 1, *fine) == [(10, [1, 2, 3]), (10, [4, 5])]


def test_each_tier_goes_on_to_the_next(tmp_path: Path) -> None:
    old = [file_of(number, number, 10) for number in (1, 2, 3)]
    assert due(tmp_path, 1010, *old, file_of(4, 900), file_of(5, 1000)) == [(60, [1, 2, 3])]
    assert due(tmp_path, 1010, *(file_of(number, number, 60) for number in (1, 2, 3))) == []


def fill(settings: HistorySettings, seconds: range) -> None:
    writer, rows = HistoryWriter(settings), maker(Path(settings.folder))
    for second in seconds:
        writer.write(*links_at(rows, second, link(1000 + second, second % 7)))
    writer.close()


def intervals(folder: Path) -> list[int]:
    return [file.interval_ns // S_NS for file in listing(folder / "links").files]


def test_rows_become_coarser_and_go(tmp_path: Path) -> None:
    settings, problems = keeping(tmp_path), list[str]()
    fill(settings, range(0, 540, 3))
    keeper = HistoryKeeper(settings, problems.append)
    before = query_rows(tmp_path, TOTALS)
    seen = []
    for now_s in (540, 740, 1600, 5541):
        keeper.tidy(NOON_S + now_s)
        seen.append(intervals(tmp_path))
    assert seen == [[10, 1, 1, 1, 1, 1, 1], [10, 10, 10], [60], []]
    assert problems == []
    assert before == [(180, sum(second % 7 for second in range(0, 540, 3)), before[0][2])]


def test_no_row_is_lost_or_twice_in_any_tier(tmp_path: Path) -> None:
    settings = keeping(tmp_path)
    fill(settings, range(0, 540, 3))
    keeper = HistoryKeeper(settings, pytest.fail)
    ((snapshots, samples, total),) = query_rows(tmp_path, TOTALS)
    for now_s in (540, 740, 1600):
        keeper.tidy(NOON_S + now_s)
        ((rows, weight, added),) = query_rows(tmp_path, TOTALS)
        assert (rows, weight) == (snapshots, samples)
        assert abs(added - total) <= weight  # means are whole ns
    assert len(query_rows(tmp_path, "from links")) == 9


def test_crash_between_merge_and_delete_shows_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = keeping(tmp_path)
    fill(settings, range(0, 180, 3))
    before = query_rows(tmp_path, TOTALS)

    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", crash)
        with pytest.raises(Crash):
            HistoryKeeper(settings, pytest.fail).tidy(NOON_S + 700)
    assert len(listing(tmp_path / "links").replaced) == 3
    assert query_rows(tmp_path, TOTALS)[0][:2] == before[0][:2]
    HistoryKeeper(settings, pytest.fail).tidy(NOON_S + 700)
    assert listing(tmp_path / "links").replaced == ()


def test_a_broken_file_is_set_aside_and_the_others_merged(tmp_path: Path) -> None:
    settings, problems = keeping(tmp_path), list[str]()
    fill(settings, range(0, 240, 3))
    broken = listing(tmp_path / "links").files[1].path
    broken.write_bytes(b"PAR1")
    keeper = HistoryKeeper(settings, problems.append)
    keeper.tidy(NOON_S + 700)
    assert [problem.partition(": set aside: ")[0] for problem in problems] == [str(broken)]
    keeper.tidy(NOON_S + 700)
    assert len(problems) == 1
    assert intervals(tmp_path) == [10, 10]
    assert query_rows(tmp_path, "select sum(snapshots) from links") == [(60,)]
    assert len(listing(tmp_path / "links").corrupt) == 1
    keeper.tidy(NOON_S + 6000)
    assert list((tmp_path / "links").iterdir()) == []


def test_a_journal_that_was_set_aside_goes_by_its_age(tmp_path: Path) -> None:
    settings = keeping(tmp_path)
    fill(settings, range(1))
    broken = tmp_path / "links" / "00000099.journal.corrupt"
    broken.write_bytes(b"no journal")
    os.utime(broken, (NOON_S, NOON_S))
    keeper = HistoryKeeper(settings, pytest.fail)
    keeper.tidy(NOON_S + settings.longest_ns // S_NS)
    assert broken.exists()
    keeper.tidy(NOON_S + settings.longest_ns // S_NS + 1)
    assert not broken.exists()


def test_a_merge_that_fails_is_told_and_leaves_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, problems = keeping(tmp_path), list[str]()
    fill(settings, range(0, 180, 3))
    monkeypatch.setattr(downsample, "_MEMORY", "1KB")
    HistoryKeeper(settings, problems.append).tidy(NOON_S + 700)
    assert len(problems) == 1
    assert intervals(tmp_path) == [1, 1, 1]


ENDLESS = "SELECT count(*) FROM range(1000000000000000)"


@pytest.mark.parametrize("before", [True, False], ids=["before", "during"])
def test_merging_ends_when_it_is_told_to_and_leaves_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    settings, halt, ended = keeping(tmp_path), Halt(), threading.Event()
    fill(settings, range(0, 180, 3))

    def tell() -> None:
        while not ended.wait(0.01):
            halt.ask()

    def portions(*_: object) -> list[str]:
        teller.start()
        return ["true"]

    teller = threading.Thread(target=tell)
    with monkeypatch.context() as patch:
        patch.setattr(downsample, "statement", lambda *_: ENDLESS)
        patch.setattr(downsample, "_portions", portions)
        if before:
            halt.ask()
        HistoryKeeper(settings, pytest.fail, halt).tidy(NOON_S + 700)
    ended.set()
    assert (teller.ident is None) == before
    assert intervals(tmp_path) == [1, 1, 1]
    assert not list((tmp_path / "links").glob("*.unfinished"))
    HistoryKeeper(settings, pytest.fail).tidy(NOON_S + 700)
    assert intervals(tmp_path) == [10]


def test_a_file_that_cannot_be_deleted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, problems = keeping(tmp_path, max_bytes=1), list[str]()
    fill(settings, range(1))
    monkeypatch.setattr(Path, "unlink", Mock(side_effect=OSError(30, "Read-only file system")))
    HistoryKeeper(settings, problems.append).tidy(NOON_S)
    assert problems == ["[Errno 30] Read-only file system"]


def test_the_oldest_files_make_room(tmp_path: Path) -> None:
    fill(keeping(tmp_path), range(0, 300, 3))
    files = listing(tmp_path / "links").files
    limit = sum(file.size_bytes for file in files[-2:])
    HistoryKeeper(keeping(tmp_path, max_bytes=limit), pytest.fail).tidy(NOON_S + 300)
    assert listing(tmp_path / "links").files == files[-2:]


DAY_S = 86_400


@pytest.mark.parametrize("recorded", [False, True], ids=["no row since", "rows since"])
def test_a_clock_that_is_a_month_ahead_deletes_nothing(tmp_path: Path, recorded: bool) -> None:
    settings, problems = keeping(tmp_path, longest_gap_ns=None), list[str]()
    fill(settings, range(0, 300, 3))
    ahead_s = 31 * DAY_S
    if recorded:
        fill(settings, range(ahead_s, ahead_s + 3))
    HistoryKeeper(settings, problems.append).tidy(NOON_S + ahead_s + 3)
    assert query_rows(tmp_path, "select sum(snapshots)::int from links") == [(103 if recorded else 100,)]
    ahead = f"the clock is {ahead_s - 294} s ahead of the newest complete file"
    told = f"{tmp_path}: {ahead}: only 166 s of these count as age"
    assert problems == ([] if recorded else [told])


def test_a_clock_that_is_a_month_behind_deletes_nothing(tmp_path: Path) -> None:
    settings = keeping(tmp_path, longest_gap_ns=None)
    fill(settings, range(31 * DAY_S, 31 * DAY_S + 120, 3))
    fill(settings, range(120))
    HistoryKeeper(settings, pytest.fail).tidy(NOON_S + 120)
    assert query_rows(tmp_path, "select sum(snapshots)::int from links") == [(160,)]


def test_rows_go_by_the_time_for_which_there_are_rows() -> None:
    ends_s = [1000, 1600, 2200, 2200 + 40 * DAY_S]
    ages = Ages(ends_s, ends_s[-1] + 600, DAY_S)
    assert [ages.age_s(end_s) for end_s in ends_s] == [600 + DAY_S + 1200, 600 + DAY_S + 600, 600 + DAY_S, 600]
    assert (ages.ahead_s, ages.age_s(77)) == (0, 0)
