"""Queries: one SELECT, nothing but the history, broken files named and left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from collectors.errors import HistoryError
from collectors.history.files import listing
from collectors.history.parquet import problem_of
from collectors.history.query import query
from collectors.history.schema import TABLES
from collectors.history.settings import HistorySettings
from collectors.history.writer import HistoryWriter
from tests.collectors.history.samples import S_NS, link, links_at, maker, query_rows


@pytest.fixture(scope="module")
def three_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a history of three files of links, and a row in a journal."""
    folder = tmp_path_factory.mktemp("history")
    writer, rows = HistoryWriter(HistorySettings(folder=str(folder), file_span_ns=60 * S_NS)), maker(folder)
    for second in range(0, 181, 5):
        writer.write(*links_at(rows, second, link(second)))
    writer.complete(pytest.fail)
    return folder


@pytest.fixture
def history(three_files: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(three_files, tmp_path / "it's"))


def test_files_and_journal_are_one_view(history: Path) -> None:
    assert query_rows(history, "select count(*), max(delay_mean_ns) from links") == [(37, 180)]


def test_every_table_is_a_view_in_a_new_history(tmp_path: Path) -> None:
    (tmp_path / next(iter(TABLES))).mkdir()
    for table in TABLES.values():
        answer = query(tmp_path, f"from {table.name}")
        assert answer.columns == tuple(column.name for column in table.columns)
        assert list(answer.batches) == []


def test_a_folder_without_a_history_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no collector has written a history here"):
        query(tmp_path, "from links")


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("selec 1", "^Parser Error: syntax error at or near"),
        ("select nothing from links", "^Binder Error: Referenced column"),
        ("from nowhere", "^Catalog Error: Table with name nowhere does not exist"),
        ("select 'a'::int", "^Conversion Error: "),
        ("copy links to '{folder}/x.csv'", "^a query must be a single SELECT"),
        ("drop view links", "^a query must be a single SELECT"),
        ("select 1; drop view links", "^a query must be a single SELECT"),
        ("set threads=1", "^a query must be a single SELECT"),
        ("", "^a query must be a single SELECT"),
        ("from read_csv('/etc/passwd')", "^Permission Error"),
        ("from read_text('{folder}/links/*')", "^Permission Error"),
        ("from folder", "^Catalog Error"),
        ("select delay_quantile(delay_mean_ns, 0.5) from links", "takes delay sketches .column delay_sketch"),
        ("select delay_quantile('x', 0.5) from links", "takes delay sketches .column delay_sketch"),
        ("select sketch_quantile(samples, 0.5) from links", "takes delay sketches .column delay_sketch"),
    ],
)
def test_what_is_refused_in_one_line(history: Path, statement: str, complaint: str) -> None:
    folder = history
    before = sorted(folder.rglob("*"))
    with pytest.raises(HistoryError, match=complaint) as caught:
        query_rows(folder, statement.format(folder=str(folder).replace("'", "''")))
    assert "\n" not in str(caught.value)
    assert sorted(folder.rglob("*")) == before


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="none: no such folder"):
        query_rows(tmp_path / "none", "from links")


@pytest.mark.parametrize("length", [0, 3, 50, -9])
def test_a_cut_file_is_named_and_left_out(history: Path, length: int) -> None:
    broken = listing(history / "links").files[1].path
    broken.write_bytes(broken.read_bytes()[:length])
    problems: list[str] = []
    assert query_rows(history, "select count(*) from links", problems) == [(25,)]
    assert [problem.partition(": left out: ")[0] for problem in problems] == [str(broken)]


def test_a_file_with_wrong_bytes_inside_is_named_and_left_out(history: Path) -> None:
    broken = listing(history / "links").files[0].path
    data = bytearray(broken.read_bytes())
    data[4:1000] = bytes(996)
    broken.write_bytes(data)
    problems: list[str] = []
    assert query_rows(history, "select count(*), sum(delay_mean_ns) from links", problems) == [(25, 25 * 120)]
    assert [problem.partition(": left out: ")[0] for problem in problems] == [str(broken)]


def test_a_file_that_goes_while_a_query_begins_is_listed_again(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = listing(history / "links").files[0].path

    def look_and_remove(path: Path, *, thoroughly: bool = False) -> str | None:
        problem = problem_of(path, thoroughly=thoroughly)
        gone.unlink(missing_ok=True)
        return problem

    monkeypatch.setattr("collectors.history.query.problem_of", look_and_remove)
    assert query_rows(history, "select count(*) from links where delay_mean_ns >= 0") == [(25,)]


def test_columns_that_an_older_file_lacks_are_null(history: Path) -> None:
    older = listing(history / "links").files[0].path
    pq.write_table(pq.read_table(older).drop_columns(["loss_source"]), older)
    assert query_rows(history, "select count(*), count(src), count(loss_source) from links") == [(37, 37, 0)]
