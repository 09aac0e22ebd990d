"""SQL tasks on the command line: tables, and a plan before anything is submitted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from controller.apiserver.resources import Metadata, Task
from controller.apiserver.resources.task import Program, ProgramKind, ProgramTable, TaskSpec
from controller.apps.cli.task.sql import planned, tables_of
from controller.common.errors import ControllerError


def task(sql: str, **tables: ProgramTable) -> Task:
    program = Program(kind=ProgramKind.SQL, text=sql, tables=tables)
    return Task(metadata=Metadata(name="q"), spec=TaskSpec(program=program))


def test_tables_of_the_command_line_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert tables_of(["a=a.parquet", "b=/data/b.csv"]) == {"a": str(tmp_path / "a.parquet"), "b": "/data/b.csv"}
    for wrong in ("a", "=a.parquet", "a="):
        with pytest.raises(typer.BadParameter, match=f"--table {wrong}: expected NAME=FILE"):
            tables_of([wrong])


def test_a_task_is_planned_with_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"k": [1, 2, 2], "v": [5, 6, 7]}), tmp_path / "t.parquet")
    made = planned(task("SELECT k, sum(v) FROM t GROUP BY k", t=ProgramTable(file=str(tmp_path / "t.parquet"))))
    table = made.spec.program.tables["t"]
    assert (table.rows, table.columns, table.is_sharded) == (3, {"k": "BIGINT", "v": "BIGINT"}, True)
    assert [operator.name for operator in made.spec.operators] == ["aggregate-1"]
    assert "1 operator planned, sizes by all rows; units share the rows of t" in capsys.readouterr().out


def test_what_is_not_split_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"k": [1, 2]}), tmp_path / "t.parquet")
    made = planned(task("SELECT k, rank() OVER (ORDER BY k) FROM t", t=ProgramTable(file=str(tmp_path / "t.parquet"))))
    assert not made.spec.program.tables["t"].is_sharded
    assert made.spec.operators
    assert "not split over units: WINDOW cannot be split across workers" in capsys.readouterr().out


def test_sql_without_tables_is_left_as_it_is() -> None:
    assert planned(task("SELECT 1")) == task("SELECT 1")


@pytest.mark.parametrize(
    ("sql", "table", "problem"),
    [
        ("SELECT 1", ProgramTable(file="/no/t.parquet"), "task q: table t: /no/t.parquet is not on this machine"),
        ("SELECT x FROM t", ProgramTable(file="/no", rows=1, columns={"k": "BIGINT"}), "task q: SQL: "),
    ],
)
def test_a_wrong_task_is_one_line(sql: str, table: ProgramTable, problem: str) -> None:
    with pytest.raises(ControllerError, match=problem) as caught:
        planned(task(sql, t=table))
    assert "\n" not in str(caught.value)
