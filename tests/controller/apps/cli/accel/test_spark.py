"""`millrace accel explain --spark-log`: tables, CSV and JSON of real logs; logs that are cut; credentials; refusals."""

from __future__ import annotations

import csv
import json
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from controller.apps.cli import main
from tests.controller.acceleration.spark.spark_logs import EVERY, LARGE, LOGS, LZ4, ODD, OLD, ROLLED, gzipped, plain
from tests.controller.acceleration.spark.trimming import SECRET

Output = tuple[int, str, str]


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> Output:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "accel", "explain", *arguments])
        patch.setenv("COLUMNS", "260")
        with pytest.raises(SystemExit) as end:
            main()
    said = capsys.readouterr()
    return int(end.value.code or 0), said.out, said.err


def document(capsys: pytest.CaptureFixture[str], path: Path, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = explain(capsys, "--spark-log", str(path), "--json", *arguments)
    assert code == 0, err
    found: list[dict[str, Any]] = json.loads(out)["applications"]
    return found


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_stages_are_divided_among_their_operators(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = document(capsys, path)
    assert found["faults"] == []
    for query in found["queries"]:
        parts: dict[tuple[int, int], float] = {}
        for operator in query["operators"]:
            for part in operator["stages"]:
                key = (part["stage"], part["attempt"])
                parts[key] = parts.get(key, 0.0) + part["task_s"]
        for stage in query["stages"]:
            own = parts.get((stage["stage"], stage["attempt"]), 0.0)
            assert own + stage["no_operator_s"] == pytest.approx(stage["task_s"])


def test_people_get_operators_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "--spark-log", str(LARGE))
    assert (code, err) == (0, "")
    assert all(text in out for text in ("SortMergeJoin", "what would flip it", "why not more", "to cpu: "))
    assert "TPC-H, scale 1 (local-1796008063775, Spark 4.3.0, 1 machine, 2 cores)" in out
    assert "gpu: from the calibration" in out


def test_a_hardware_file_has_the_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = tmp_path / "hardware.yaml"
    hardware.write_text("{millrace: 1, preset: 2, accelerators: [{kind: npu, parallelism: 16, runs: [sort]}]}")
    (found,) = document(capsys, LARGE, "--hardware", str(hardware))
    devices = {one["device"] for query in found["queries"] for one in query["operators"]}
    kinds = {one["kind"] for query in found["queries"] for one in query["operators"] if one["device"] == "npu"}
    assert (devices, kinds) == ({"cpu", "npu"}, {"sort"})
    (strict,) = document(capsys, LARGE, "--hardware", str(hardware), "--preset", "100")
    assert strict["gain"] == 1.0


def test_programs_get_rows_and_the_summary_apart(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "--spark-log", str(ODD), "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(out.splitlines()))
    (window,) = (row for row in rows if row["operator"] == "Window")
    assert (window["runs on"], window["what would flip it"]) == ("cpu", "nothing: it is unknown")
    assert "unknown operators, counted as CPU: BatchEvalPython (2), Window (1), OverwriteByExpression (1)" in err
    assert "recommended: no" in err


def test_a_folder_is_summed_up_best_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, path in (("a", LZ4), ("b", LARGE), ("c", OLD)):
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "notes.txt").write_text("no log")
    code, out, err = explain(capsys, "--spark-log", str(tmp_path), "--json")
    assert code == 0
    gains = [one["gain"] for one in json.loads(out)["applications"]]
    assert gains == sorted(gains, reverse=True)
    assert len(gains) == 3
    assert err.splitlines() == [
        f"left out: {tmp_path}/notes.txt: is not an event log of Spark: no line is an event",
    ]
    code, out, _ = explain(capsys, "--spark-log", str(tmp_path), "--format", "csv")
    assert "local-1796008063775: " in out


@pytest.mark.parametrize("form", [(), ("--format", "csv"), ("--json",)], ids=["table", "csv", "json"])
@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_credentials_are_never_printed(path: Path, form: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = explain(capsys, "--spark-log", str(path), *form)
    assert code == 0
    assert SECRET not in out + err
    assert "hunter2" not in out + err


def test_credentials_in_names_and_descriptions_are_hidden(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = plain(LZ4).replace(b'"codec lz4"', b'"job token=hunter2"').replace(b'"q06"', b"\"password 'hunter2'\"")
    (tmp_path / "log").write_bytes(data)
    _, out, err = explain(capsys, "--spark-log", str(tmp_path / "log"))
    assert "hunter2" not in out + err
    assert "job token=***" in out
    assert "password ***" in out


@pytest.mark.parametrize("seed", range(15))
def test_a_cut_log_is_one_line_on_stderr(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = gzipped(plain(OLD)) if seed % 2 else plain(OLD)
    cut = tmp_path / "cut"
    cut.write_bytes(data[: random.Random(seed).randrange(150, len(data))])
    code, out, err = explain(capsys, "--spark-log", str(cut), "--json")
    assert (code, len(err.splitlines())) == (0, 1)
    assert err.startswith(f"{cut}: ")
    assert "ends before the application does" in err
    assert err.endswith("; what is there is used\n")
    assert json.loads(out)["applications"][0]["spark_version"] == "3.5.9"


def test_a_folder_without_a_log_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abcde":
        (tmp_path / name).write_text("no log")
    code, out, err = explain(capsys, "--spark-log", str(tmp_path))
    assert (code, out) == (1, "")
    assert err.endswith(
        f"{tmp_path}: none of its 5 files is an event log of Spark: {tmp_path}/a: is not an event log of"
        " Spark: no line is an event\n"
    )
    assert len(err.splitlines()) == 1


def test_a_pipe_is_read_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(plain(OLD),))
    writer.start()
    (found,) = document(capsys, pipe)
    writer.join()
    assert (found["faults"], found["name"]) == ([], "Spark 3.5")


def test_plans_are_placed_like_other_queries(capsys: pytest.CaptureFixture[str]) -> None:
    tables = ("--table", "lineitem=6000000:1000000000")
    ground = ("--rate", "10 Gbit/s", "--machines", "4", "--t", "filter=0.2")
    code, out, err = explain(capsys, "--spark-log", str(LOGS / "plans.txt"), *tables, *ground, "--json")
    assert code == 0, err
    found = json.loads(out)
    operators = {one["name"]: one for one in found["operators"]}
    assert found["machines"] == 4
    assert "rows unknown: state the size of customer" in operators["top-n-1"]["reasons"][0]
    assert any(note.startswith("orders: no size of this table: give --table orders=") for note in found["notes"])
    assert any(note.endswith("only the first of its 3 plans is shown") for note in found["notes"])
    assert operators["filter-3"]["device"] in {"cpu", "gpu"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "give TARGET or --spark-log"),
        (("select 1", "--spark-log", str(OLD)), "give TARGET or --spark-log"),
        (("--spark-log", str(OLD), "--rate", "1 Gbit/s"), "--rate does not go with an event log"),
        (("--spark-log", str(OLD), "--tenths"), "--tenths does not go with an event log"),
        (("--spark-log", str(OLD), "--join", "square"), "--join does not go with an event log"),
        (("--spark-log", str(OLD), "--t", "filter"), "KIND=SECONDS"),
        (("--spark-log", "/nonexistent"), "/nonexistent: No such file or directory"),
        (("--spark-log", "/dev/zero"), "/dev/zero: is not an event log of Spark"),
        (("--spark-log", str(OLD), "--preset", "0.5"), "preset of 0.5 is not finite and at least 1"),
        (
            ("--spark-log", str(LOGS / "plans.txt"), "--rate", "inf", "-n", "2", "--database", "x"),
            "--database does not go with a plan of Spark",
        ),
        (("--spark-log", str(LOGS / "plans.txt")), "--topology"),
    ],
)
def test_wrong_input_is_refused_in_a_line(
    arguments: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = explain(capsys, *arguments)
    assert code != 0
    assert out == ""
    assert text in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_the_rolled_log_of_22_statements_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = document(capsys, ROLLED)
    assert [query["description"] for query in found["queries"]] == [f"q{number:02}" for number in range(1, 23)]
    assert found["unknown_operators"] == {}
    assert found["gains"] is False
    assert found["why_not_more"][0].startswith("of 42.98 s of tasks ")
