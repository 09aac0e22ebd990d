"""`millrace probe build`, `run` and `show`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.apps.cli.app import app
from controller.probing import files
from controller.probing.running import results
from dataplane.errors import MillraceError

EXPERT = """\
millrace: 1
name: large-solve
task_type: dense-solve
kernels:
  - {kernel: dgemm, repetitions: 3, sizes: {m: 32, n: 32, k: 32}}
"""
GRAPH = """\
millrace: 1
name: pipeline
operators:
  - {name: a, kind: gemm, shape: {m: 32, n: 32, k: 32}, format: fp64, executions: 3000}
  - {name: plot, kind: plot}
  - {name: b, kind: fft, shape: {n: 1024}, format: fp64, executions: 2000}
  - {name: alone, kind: gemm, shape: {m: 16, n: 16, k: 16}, format: fp64}
flows:
  - {src: a, dst: plot}
  - {src: plot, dst: b}
"""
SCRIPT = """\
import numpy as np


def main(count):
    matrix = np.ones((32, 32))
    for _ in range(count):
        found = matrix @ matrix
    return found
"""
QUERY = "select g, sum(v) from (select range % 3 as g, range as v from range(1000)) where v > 10 group by g"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MILLRACE_API", raising=False)
    for name, text in (("e.yaml", EXPERT), ("g.yaml", GRAPH), ("s.py", SCRIPT), ("q.sql", QUERY)):
        (tmp_path / name).write_text(text)
    return tmp_path


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["probe", *arguments], catch_exceptions=False)


def refused(*arguments: str) -> str:
    with pytest.raises(MillraceError) as error:
        command(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_experts_file_is_built_tried_shown_and_run(folder: Path) -> None:
    built = command("build", "e.yaml")
    assert built.stdout.startswith("large-solve.probe.json: dgemm x 3; 0 links, about ")
    as_json = command("show", "large-solve.probe.json", "--format", "json").stdout
    assert json.loads(as_json) == json.loads(Path("large-solve.probe.json").read_text())
    shown = command("show", "large-solve.probe.json", "--picture", "p.svg")
    assert shown.stdout.splitlines()[1] == "  dgemm  x 3  k=32 m=32 n=32  numpy on cpu"
    assert (folder / "p.svg").stat().st_size > 1000
    run = command("run", "large-solve.probe.json", "--repeat", "2", "--at-least", "0", "-f", "json", "-o", "r.json")
    rows = json.loads(run.stdout)
    assert [(row["what"], row["runs"]) for row in rows] == [("large-solve", 2), ("dgemm", 6)]
    assert len(results.read(folder / "r.json").repetitions) == 2


def test_a_graph_is_built_together_and_apart(folder: Path) -> None:
    built = command("build", "g.yaml", "--no-check", "-o", "p.yaml")
    assert built.stdout.startswith("p.yaml: dgemm x 3, fft x 2, dgemm x 1; 1 links")
    assert built.stderr.startswith("plot: no match")
    assert [len(part) for part in files.load(folder / "p.yaml").parts] == [2, 1]
    apart = command("build", "g.yaml", "--no-check", "--apart", "-o", "p.yaml")
    assert [line.partition(";")[0] for line in apart.stdout.splitlines()] == [
        "p-1.yaml: dgemm x 3, fft x 2",
        "p-2.yaml: dgemm x 1",
    ]
    assert [use.repetitions for use in files.load(folder / "p-2.yaml").uses] == [1]


def test_function_is_built_with_arguments_and_matched_share(folder: Path) -> None:
    built = command("build", "s.py:main", "2000", "--no-check", "-t", "dense-solve")
    probe = files.load(folder / built.stdout.partition(":")[0])
    assert [(use.kernel, use.repetitions) for use in probe.uses if use.kernel == "dgemm"] == [("dgemm", 2)]
    assert (probe.category, probe.task_type) == ("hpc", "dense-solve")
    assert 0 < (probe.share_matched or 0) <= 1


def test_probe_stores_its_programs_reference_times(folder: Path) -> None:
    command("build", "s.py:main", "2000", "-o", "p.json")
    probe = files.load(folder / "p.json")
    assert probe.reference is not None
    assert probe.reference.cpu_time_s > 0
    assert [name for name, _ in probe.reference.kernels_s] == sorted(use.name for use in probe.uses)
    assert "of its kernels' time, where it was built" in command("show", "p.json").stdout
    for alone in ("--no-reference", "--no-check", "--parallel"):
        command("build", "s.py:main", "2000", alone, "-o", "q.json")
        assert files.load(folder / "q.json").reference is None


def test_a_query_is_built_of_its_plan(folder: Path) -> None:
    command("build", "q.sql", "--no-check", "-t", "sales-query", "-o", "q.json")
    probe = files.load(folder / "q.json")
    assert probe.category == "sql"
    assert {use.kernel for use in probe.uses} >= {"filter-scan", "aggregate"}


def test_probe_beyond_the_time_limit_is_refused_with_a_remedy(folder: Path) -> None:
    (folder / "long.yaml").write_text(GRAPH.replace("m: 32, n: 32, k: 32", "m: 320, n: 320, k: 320"))
    line = refused("build", "long.yaml", "--limit", "0.03", "--ratio", "100")
    assert "dgemm at k=320 m=320 n=320 (of a) x 30 takes" in line
    # Where a busy machine takes longer than the limit even for one of them, no ratio helps.
    assert ("use sizes" if "once each takes" in line else "use a ratio") in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("build", "none.yaml"), "none.yaml: No such file or directory"),
        (("build", "e.yaml", "--device", "fpga"), "kernel dgemm has no implementation for fpga"),
        (("build", "e.yaml", "-o", "x.txt"), "x.txt: a probe task's name ends in .json or .yaml"),
        (("build", "e.yaml", "-o", "none/x.json"), "none/x.json: No such file or directory"),
        (("build", "none.sql"), "none.sql: No such file or directory"),
        (("build", "none.py"), "none.py"),
        (("show", "e.yaml"), "e.yaml:4: kernels: unknown key"),
        (("run", "e.yaml"), "e.yaml:4: kernels: unknown key"),
    ],
)
def test_wrong_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "e.yaml", "--device", "abacus"),
        ("build", "e.yaml", "argument"),
        ("run", "e.yaml", "--units", "0"),
        ("run", "e.yaml", "--units", "1,x"),
        ("build", "e.yaml", "--ratio", "0"),
    ],
)
def test_wrong_options_are_named(arguments: tuple[str, ...]) -> None:
    if arguments[0] == "run":
        command("build", "e.yaml", "--no-check", "-o", "e.json")
        arguments = ("run", "e.json", *arguments[2:])
    done = command(*arguments)
    assert done.exit_code == 2
    assert "Error" in done.stderr


def test_too_many_units_are_refused_with_the_number_available() -> None:
    command("build", "e.yaml", "--no-check")
    cores = len(os.sched_getaffinity(0))
    line = refused("run", "large-solve.probe.json", "--units", str(cores + 1))
    assert line.endswith(f"refused: {cores + 1} units need {cores + 1} cores, but this process may use {cores}")
