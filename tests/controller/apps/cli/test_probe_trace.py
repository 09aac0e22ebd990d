"""`millrace probe trace`, including wrong input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from controller.apps.cli import main
from controller.cluster.operators import load

PROGRAM = """
import sys
import numpy as np

def solve(n):
    a = np.random.default_rng(1).random((n, n)) + n * np.eye(n)
    return np.linalg.solve(a, np.ones(n))

if __name__ == "__main__":
    print(solve(int(sys.argv[1])).sum())
"""
GRAPH = """
millrace: 1
name: g
operators: [{name: a, kind: my-own, shape: {n: 4}}]
"""


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["millrace", "probe", "trace", *words])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLRACE_API", raising=False)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "query.sql").write_text("select sum(price) from sales where day > 7")
    (tmp_path / "graph.yaml").write_text(GRAPH)
    return tmp_path


def test_a_script_is_shown_and_written(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "program.py", "60", "--format", "json", "--out", "out.yaml") == 0
    captured = capfd.readouterr()
    rows = json.loads(captured.out)
    solve = next(row for row in rows if row["operator"] == "solve-1")
    assert solve["computes"] == "solve fp64 columns=1 n=60"
    assert solve["place"] == "program.py:7"
    assert "elementwise-2" in solve["reads"]
    assert float(captured.err.strip()) > 0
    assert [operator.kind for operator in load(Path("out.yaml")).operators] == [
        row["operator"].rsplit("-", 1)[0] for row in rows
    ]


def test_matches_and_misses_say_why(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "program.py:solve", "60", "--match", "-f", "json") == 0
    rows = json.loads(capfd.readouterr().out)
    solve = next(row for row in rows if row["operator"] == "solve-1")
    assert solve["kernel"].startswith("dense-solve v")
    assert run(monkeypatch, "graph.yaml", "--match", "-f", "json") == 0
    [row] = json.loads(capfd.readouterr().out)
    assert row["kernel"] == "-"
    assert row["why"] == "no match: no kernel computes my-own or anything like it"


def test_a_query_is_planned(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "query.sql", "--table", "sales=1000:16000", "-f", "json") == 0
    rows = json.loads(capfd.readouterr().out)
    assert [row["operator"] for row in rows] == ["filter-1", "aggregate-1"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("missing.py",), "millrace: missing.py: no such script; a function is script.py:function"),
        (("missing.sql",), "millrace: missing.sql: No such file or directory"),
        (("query.sql",), "millrace: SQL: Catalog Error: Table with name sales does not exist!"),
        (("query.sql", "more"), "query.sql takes no arguments: more"),
        (("query.sql", "--table", "sales"), "'sales' is not a table: expected NAME=ROWS:BYTES"),
        (("program.py", "x"), "program.py: it ended with ValueError: invalid literal for int()"),
    ],
)
def test_wrong_input_is_a_line(
    words: tuple[str, ...], line: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words) != 0
    captured = capfd.readouterr()
    assert line in " ".join(captured.err.replace("│", " ").split())
    assert "Traceback" not in captured.err
