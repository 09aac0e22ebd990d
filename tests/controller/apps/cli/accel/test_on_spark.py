"""`millrace accel run --spark`: options, the way that the answer names, and one-line errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.apps.cli import main
from tests.controller.acceleration.running.spark.environment import with_spark

MEDIAN = "select k, median(v) as m from t group by rollup (k) order by k nulls last"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Return a table as the command line names it."""
    file = tmp_path / "t.parquet"
    pq.write_table(pa.table({"k": [1, 1, 2], "v": [1, 3, 5]}), file)
    return f"t={file}"


def run(monkeypatch: pytest.MonkeyPatch, statement: str, table: str, *options: str) -> int:
    """Run the command and return its exit status."""
    arguments = ["millrace", "accel", "run", statement, "--table", table, *options]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


def test_without_spark_the_refusal_has_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert run(monkeypatch, MEDIAN, table, "--processes", "2") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "millrace: SQL: grouping sets cannot be split across workers; with --spark it runs on Apache Spark"
    )


def test_there_is_no_hint_where_spark_refuses_as_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert run(monkeypatch, "select mode(v) from t", table, "--processes", "2") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "millrace: SQL: aggregate mode cannot be split across workers"


def test_both_reasons_are_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert run(monkeypatch, "select mode(v) from t", table, "--processes", "2", "--spark") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "millrace: SQL: aggregate mode cannot be split across workers; aggregate mode(BIGINT) cannot be run on Spark"
    )


def test_missing_java_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str, tmp_path: Path
) -> None:
    monkeypatch.setattr("controller.acceleration.running.spark.software.spark_home", lambda: tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(monkeypatch, MEDIAN, table, "--processes", "2", "--spark") == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("apt install openjdk-17-jre-headless")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--workers", "unix:/no", "--spark"), "--spark requires --processes"),
        (("--processes", "2", "--spark", "--spark-settings", "x"), "--spark-settings requires --spark-master"),
    ],
)
def test_options_that_exclude_others(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    table: str,
    options: tuple[str, ...],
    line: str,
) -> None:
    assert run(monkeypatch, MEDIAN, table, *options) != 0
    assert line in " ".join(capsys.readouterr().err.split())


def test_a_split_statement_says_so_with_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    assert run(monkeypatch, "select max(v) as m from t", table, "--processes", "2", "--spark", "--format", "csv") == 0
    captured = capsys.readouterr()
    assert captured.out == "m\n5\n"
    assert captured.err.startswith("split: ")


@pytest.fixture
def _spark() -> Iterator[None]:
    with with_spark():
        yield


@pytest.mark.usefixtures("_spark")
@pytest.mark.parametrize("where", [("--spark",), ("--spark-master", "local[1]")])
def test_rows_come_from_spark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str, where: tuple[str, ...]
) -> None:
    options = ("--processes", "2", *where, "--format", "csv", "--deadline", "600")
    assert run(monkeypatch, MEDIAN, table, *options) == 0
    captured = capsys.readouterr()
    assert captured.out == "k,m\n1,2.0\n2,5.0\n,3.0\n"
    assert captured.err.startswith("on Spark in ")
    assert captured.err.endswith(": SQL: grouping sets cannot be split across workers\n")
