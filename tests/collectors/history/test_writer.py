"""The writer: files at their times, nothing lost by a kill, one writer a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from collectors.errors import HistoryError
from collectors.history.files import journal_name, listing
from collectors.history.rows import Observation
from collectors.history.settings import HistorySettings, Tier
from collectors.history.writer import HistoryWriter
from tests.collectors.history.samples import NOON_S, S_NS, link, links_at, maker, query_rows, snapshot

ROOT = Path(__file__).parents[3]
COUNT = "select count(*), count(distinct time) from links"


def settings(folder: Path, **others: Any) -> HistorySettings:
    tiers = (Tier(interval_ns=10 * S_NS, keep_ns=100_000 * S_NS),)
    return HistorySettings(folder=str(folder), tiers=tiers, **{"file_span_ns": 60 * S_NS, **others})


def test_rows_are_seen_at_once_and_files_appear_at_their_times(tmp_path: Path) -> None:
    writer, rows = HistoryWriter(settings(tmp_path)), maker(tmp_path)
    finished = []
    for second in range(0, 180, 20):
        finished.append(writer.write(*links_at(rows, second)))
        assert query_rows(tmp_path, COUNT) == [(second // 20 + 1,) * 2]
        writer.complete(pytest.fail)
        assert query_rows(tmp_path, COUNT) == [(second // 20 + 1,) * 2]
    assert [number for number, is_finished in enumerate(finished) if is_finished] == [3, 6]
    writer.close()
    listed = listing(tmp_path / "links")
    assert [file.end_s - NOON_S for file in listed.files] == [40, 100, 160]
    assert listed.journals == ()
    assert query_rows(tmp_path, COUNT) == [(9, 9)]


def test_a_full_file_ends_where_the_coarsest_interval_does(tmp_path: Path) -> None:
    writer, rows = HistoryWriter(settings(tmp_path, rows_per_file=3)), maker(tmp_path)
    for second in range(25):
        writer.write(*links_at(rows, second))
    writer.close()
    assert [file.end_s - NOON_S for file in listing(tmp_path / "links").files] == [9, 19, 24]


def test_only_one_writes(tmp_path: Path) -> None:
    writer = HistoryWriter(settings(tmp_path))
    with pytest.raises(HistoryError, match="another collector keeps its history here"):
        HistoryWriter(settings(tmp_path))
    writer.close()
    HistoryWriter(settings(tmp_path)).close()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="file/history: cannot keep the history here: Not a directory"):
        HistoryWriter(settings(tmp_path / "file" / "history"))


def test_one_table_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    writer, rows = HistoryWriter(settings(tmp_path)), maker(tmp_path)
    (tmp_path / "links").rmdir()
    wall_ns = NOON_S * S_NS
    batches = rows.batches(Observation(wall_ns, snapshot([link()]), {"reports": 1}))
    with pytest.raises(HistoryError, match=r"links.*cannot be created"):
        writer.write(batches, wall_ns)
    assert listing(tmp_path / "counters").journals
    (tmp_path / "links").mkdir()
    writer.write(batches, wall_ns)
    assert query_rows(tmp_path, COUNT) == [(1, 1)]


KILLED = """
import os, signal
from pathlib import Path
from tests.collectors.history.test_writer import HistoryWriter, links_at, maker, settings
folder = Path({folder!r})
writer, rows = HistoryWriter(settings(folder)), maker(folder)
for second in range(70):
    writer.write(*links_at(rows, second))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_nothing_that_was_written(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", KILLED.format(folder=str(tmp_path))]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    (tmp_path / "links" / "00000009-00000009.1ns.5.parquet.unfinished").write_bytes(b"half")
    assert query_rows(tmp_path, COUNT) == [(70, 70)]
    writer, rows = HistoryWriter(settings(tmp_path)), maker(tmp_path)
    writer.complete(pytest.fail)
    writer.write(*links_at(rows, 70, link()))
    assert query_rows(tmp_path, COUNT) == [(71, 71)]
    listed = listing(tmp_path / "links")
    assert ([file.first for file in listed.files], [journal.number for journal in listed.journals]) == ([1, 2], [3])
    assert not list((tmp_path / "links").glob("*.unfinished"))
    writer.close()


def test_what_cannot_be_completed_stays_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, rows, problems = HistoryWriter(settings(tmp_path)), maker(tmp_path), list[str]()
    for second in (0, 60, 120):
        writer.write(*links_at(rows, second))
    with monkeypatch.context() as full:
        full.setattr(Path, "rename", Mock(side_effect=OSError(28, "No space left on device")))
        writer.complete(problems.append)
    assert [problem.partition("cannot be written: ")[2] for problem in problems] == [
        "[Errno 28] No space left on device"
    ] * 2
    assert query_rows(tmp_path, COUNT) == [(3, 3)]
    writer.complete(pytest.fail)
    assert len(listing(tmp_path / "links").files) == 2
    writer.close(pytest.fail)
    assert query_rows(tmp_path, COUNT) == [(3, 3)]


def test_a_journal_that_is_none_is_told_once_and_set_aside(tmp_path: Path) -> None:
    problems: list[str] = []
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / journal_name(1)).write_bytes(b"no journal")
    writer = HistoryWriter(settings(tmp_path))
    assert query_rows(tmp_path, COUNT, problems) == [(0, 0)]
    assert problems == [f"{tmp_path}/links/00000001.journal: is not a journal"]
    writer.complete(problems.append)
    assert problems[1:] == [f"{tmp_path}/links/00000001.journal: is not a journal: set aside"]
    writer.write(*links_at(maker(tmp_path), 0))
    writer.close(pytest.fail)
    listed = listing(tmp_path / "links")
    assert [file.path.name for file in listed.corrupt] == ["00000001.journal.corrupt"]
    assert [file.first for file in listed.files] == [2]
    assert query_rows(tmp_path, COUNT, problems) == [(1, 1)]
    assert len(problems) == 2


def test_rows_are_brought_to_the_disk_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fdatasync(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink().parent.name)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    writer, rows = HistoryWriter(settings(tmp_path, sync_ns=10 * S_NS)), maker(tmp_path)
    counts = []
    for second in (0, 1, 9, 10, 11, 21, -3600):
        writer.write(*links_at(rows, second))
        counts.append(synced.count("links"))
    assert counts == [1, 1, 1, 2, 2, 3, 4]
    writer.write({}, (NOON_S + 3600) * S_NS)
    assert synced.count("links") == 4
    writer.close()


def test_a_disk_that_keeps_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", Mock(side_effect=OSError(5, "Input/output error")))
    writer, rows = HistoryWriter(HistorySettings(folder=str(tmp_path))), maker(tmp_path)
    with pytest.raises(HistoryError, match=r"journal: cannot be written: Input/output error"):
        writer.write(*links_at(rows, 0))
    writer.close()
    assert query_rows(tmp_path, "select count(*) from links") == [(1,)]
