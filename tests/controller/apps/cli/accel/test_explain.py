"""`millrace accel explain`: the plan with times in parts and break-evens, as text, JSON and picture; wrong input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from controller.apps.cli import main

QUERY = """select o.customer, sum(l.price) as total from orders o join lines l on o.id = l.order_id
           where o.day > 100 group by o.customer order by total desc"""
T = {"filter": 0.02, "join": 0.14, "aggregate": 0.1, "sort": 0.2, "gemm": 0.3}
"""CPU seconds for 100 MB."""
TABLES = ("--table", "orders=1500000:150000000", "--table", "lines=6000000:600000000")
HARDWARE = """
millrace: 1
machines: 8
preset: 1.2
accelerators:
- {kind: gpu, parallelism: 64, memory: 40 GiB}
- {kind: npu, parallelism: 16}
"""
FILTER = ("select * from lines where lines.day > 9", "--table", "lines=100000000:10 GB")
GRAPH = """
millrace: 1
name: step
operators:
- {name: product, kind: gemm, shape: {m: 2000000, n: 64, k: 2}, format: fp32, input_bytes: 32000000}
- {name: strange, kind: some-new-operator}
flows: [{src: product, dst: strange, nbytes: 512000000}]
"""


@pytest.fixture
def hardware(tmp_path: Path) -> str:
    (tmp_path / "hardware.yaml").write_text(HARDWARE)
    return str(tmp_path / "hardware.yaml")


def explain(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        stated = (f"--t={kind}={seconds}" for kind, seconds in T.items())
        patch.setattr("sys.argv", ["millrace", "accel", "explain", *stated, *arguments])
        patch.setenv("COLUMNS", "220")
        with pytest.raises(SystemExit) as end:
            main()
    said = capsys.readouterr()
    return not end.value.code, said.out, said.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    done, out, err = explain(capsys, *arguments, "--json")
    assert done, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_operators_show_class_times_ratio_decision_and_flips(capsys: pytest.CaptureFixture[str], hardware: str) -> None:
    found = document(capsys, QUERY, *TABLES, "--hardware", hardware, "--rate", "1 Gbit/s")
    assert [one["class"] for one in found["operators"]] == ["linear", "hash-join", "grouped", "sort"]
    assert found["choices"] == ["cpu", "gpu", "npu"]
    for one in found["operators"]:
        assert one["times"].keys() == {"cpu", "gpu", "npu"}
        for times in one["times"].values():
            assert times.keys() == {
                *("compute_s", "aggregation_s", "transfer_s", "bus_s", "compression_s", "total_s"),
            }
        assert one["device"] in found["choices"]
        best = min(one["times"][label]["total_s"] for label in ("gpu", "npu"))
        assert one["ratio"] == pytest.approx(one["times"]["cpu"]["total_s"] / best)
        assert [flip["quantity"] for flip in one["flips"]] == ["rate", "data", "cpu-time"]


def test_people_get_a_table_and_what_it_amounts_to(capsys: pytest.CaptureFixture[str], hardware: str) -> None:
    done, out, _ = explain(capsys, QUERY, *TABLES, "--hardware", hardware, "--rate", "1 Gbit/s")
    assert done
    assert all(name in out for name in ("filter-1", "join-1", "aggregate-1", "sort-1", "what would flip it"))
    assert "s as placed" in out
    assert "exact" in out


def test_a_plan_is_drawn(capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path) -> None:
    drawn = tmp_path / "plan.svg"
    done, _, err = explain(capsys, QUERY, *TABLES, "--hardware", hardware, "--rate", "1Gbit/s", "--picture", str(drawn))
    assert done
    assert f"wrote {drawn}" in err
    assert drawn.read_text().count("<path") > 10


def test_the_break_even_rate_is_where_the_device_changes(capsys: pytest.CaptureFixture[str], hardware: str) -> None:
    query = "select l.price, l.tax from lines l where l.day > 100"
    options = (query, "--table", "lines=6000000000:600000000000", "--hardware", hardware)
    one = document(capsys, *options, "--rate", "1 Gbit/s")["operators"][0]
    flip = one["flips"][0]
    rates = [f"{round(flip['value'] * nudge * 1e9)} bit/s" for nudge in (0.99, 1.01)]
    there = [document(capsys, *options, "--rate", rate)["operators"][0]["device"] for rate in rates]
    assert len(set(there)) == 2


def test_query_and_step_form_one_pipeline_unknown_on_the_cpu(
    capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.sql").write_text("select l.price, l.tax from lines l where l.day > 100")
    (tmp_path / "step.yaml").write_text(GRAPH)
    paths = (str(tmp_path / "rows.sql"), str(tmp_path / "step.yaml"))
    found = document(capsys, *paths, *TABLES[2:], "--hardware", hardware, "--rate", "10 Gbit/s")
    by_name = {one["name"]: one for one in found["operators"]}
    assert by_name["step/product"]["reads"] == ["rows/filter-1"]
    strange = by_name["step/strange"]
    assert (strange["device"], strange["ratio"], strange["times"]) == ("cpu", None, {})
    assert "some-new-operator" in strange["reasons"][0]
    assert "step/strange" in found["notes"][-1]


def test_declared_tables_are_read_from_a_file(
    capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path
) -> None:
    tables = tmp_path / "tables.yaml"
    tables.write_text("millrace: 1\ntables:\n  lines: {rows: 1000000, bytes: 0, columns: {price: DOUBLE, day: DATE}}\n")
    options = ("--tables", str(tables), "--hardware", hardware, "--rate", "1 Gbit/s")
    found = document(capsys, "select sum(price) from lines where day > date '2026-01-01'", *options)
    assert found["operators"][0]["input_gb"] == pytest.approx(1_000_000 * 12 / 8 / 1e9)
    for written in ("2.4 GB", "2400000000"):
        tables.write_text(f"millrace: 1\ntables:\n  lines: {{rows: 1000000, bytes: {written}}}\n")
        found = document(capsys, "select * from lines where lines.day > 9", *options)
        assert found["operators"][0]["input_gb"] == pytest.approx(2.4 / 8)
    tables.write_text("millrace: 1\ntables:\n  lines: {rows: 0, bytes: 0}\n")
    done, _, err = explain(capsys, "select 1", *options)
    assert not done
    assert f"{tables}:3: tables.lines.rows: a table of 0 rows" in err
    tables.write_text("millrace: 1\ntables:\n  lines: {rows: 1, bytes: 2.4 G}\n")
    done, _, err = explain(capsys, "select 1", *options)
    assert not done
    assert f"{tables}:3: tables.lines.bytes: '2.4 G' is not an amount of data" in err


def test_tables_in_files_give_rows_columns_and_widths(
    capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path
) -> None:
    columns = "range AS id, range % 7 AS kind, rpad(range::VARCHAR, 100, 'x') AS note, {'a': range} AS part"
    files = [tmp_path / "lines.parquet", tmp_path / "lines.csv"]
    for file in files:
        duckdb.sql(f"COPY (SELECT {columns} FROM range(20_000)) TO '{file}'")
    options = ("--hardware", hardware, "--rate", "1 Gbit/s")
    plans = {}
    for file in files:
        query = "select kind, max(note) from lines where id > 5 group by kind"
        plan = document(capsys, query, "--table", f"lines={file}", *options)
        plans[file.suffix] = [operator["computes"] for operator in plan["operators"]]
        # A text of more than 12 bytes takes its own and a reference of 16.
        assert plan["operators"][0]["input_gb"] == pytest.approx(20_000 * (8 + 8 + 16 + 100) / 8 / 1e9, rel=0.01)
    assert "rows=20000" in plans[".parquet"][0]
    assert plans[".parquet"] == plans[".csv"]
    nested = document(capsys, "select part.a from lines", "--table", f"lines={files[0]}", *options)
    assert nested["operators"]


def test_of_parquet_only_metadata_is_read(capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path) -> None:
    file = tmp_path / "lines.parquet"
    duckdb.sql(f"COPY (SELECT range AS id, range::DOUBLE AS price FROM range(100_000)) TO '{file}'")
    content = bytearray(file.read_bytes())
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    content[4:-footer_bytes] = bytes(len(content) - footer_bytes - 4)
    file.write_bytes(content)
    with pytest.raises(duckdb.Error):
        duckdb.execute(f"SELECT sum(price) FROM '{file}'").fetchall()
    options = ("--table", f"lines={file}", "--hardware", hardware, "--rate", "1 Gbit/s")
    assert document(capsys, "select sum(price) from lines", *options)["operators"][0]["input_gb"] == pytest.approx(1e-4)


def test_problem_of_a_query_file_names_the_file(
    capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path
) -> None:
    path = tmp_path / "settings.sql"
    for text, problem in (
        ("set threads = 1;", "SQL: SET is no query; one SELECT is expected"),
        ("select a from nowhere", "no statistics of table nowhere: give its size or file"),
    ):
        path.write_text(text)
        done, out, err = explain(capsys, str(path), "--hardware", hardware, "--rate", "1 Gbit/s")
        assert (done, out) == (False, "")
        assert err.startswith(f"millrace: {path}: {problem}")


def test_files_that_are_no_tables_are_one_line(
    capsys: pytest.CaptureFixture[str], hardware: str, tmp_path: Path
) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "text.txt").write_text("a, b\n")
    (tmp_path / "empty.csv").write_text("a,b\n")
    for name, problem in (
        ("cut.parquet", "cut.parquet: "),
        ("text.txt", "text.txt: "),
        ("empty.csv", "empty.csv: no rows, so there are no statistics to plan by"),
    ):
        options = ("--table", f"lines={tmp_path / name}", "--hardware", hardware, "--rate", "1 Gbit/s")
        done, out, err = explain(capsys, "select a from lines", *options)
        assert (done, out) == (False, "")
        assert err.startswith(f"millrace: table lines: {tmp_path}/{problem}")
        assert err.count("\n") == 1


def test_an_infinite_rate_is_the_limit_of_great_ones(capsys: pytest.CaptureFixture[str], hardware: str) -> None:
    options = (QUERY, "--table", "orders=1500000:150MB", "--table", "lines=6000000:0.6 GB", "--hardware", hardware)
    great, infinite = (document(capsys, *options, "--rate", rate) for rate in ("100 Tbit/s", "inf"))
    for one, limit in zip(great["operators"], infinite["operators"], strict=True):
        assert one["device"] == limit["device"]
        for device, times in limit["times"].items():
            assert times["transfer_s"] == 0
            finite = one["times"][device]
            assert times["total_s"] == pytest.approx(finite["total_s"] - finite["transfer_s"])


def test_the_worked_case_2d_is_what_explain_gives(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    query = "select a.id_int from data_100m a join b on a.id_int = b.id"
    tables = ("--table", "data_100m=1000000:100000000", "--table", "b=1000000:100000000")
    hardware = tmp_path / "gpu.yaml"
    hardware.write_text("{millrace: 1, machines: 1000, accelerators: [{kind: gpu, parallelism: 64}]}")
    options = ("--hardware", str(hardware), "--rate", "80 Gbit/s", "--join", "square", "--tenths", "--t", "join=0.2")
    (one,) = document(capsys, query, *tables, *options)["operators"]
    assert one["class"] == "square"
    assert one["ratio"] == pytest.approx((0.04 + 1 / 36) / (0.04 / 64 + 3299 / 115200))
    assert one["device"] == "gpu"


def test_worked_case_2b_is_a_tie_unless_the_band_is_zero(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    query = "select a.id_int from data_100m a join b on a.id_int = b.id"
    tables = ("--table", "data_100m=1000000:100000000", "--table", "b=1000000:100000000")
    hardware = tmp_path / "gpu.yaml"
    text = "millrace: 1\nmachines: 1000\naccelerators: [{kind: gpu, parallelism: 64}]\n"
    hardware.write_text(text)
    as_text = ("--join", "square", "--tenths", "--t", "join=0.2")
    options = (query, *tables, "--hardware", str(hardware), "--rate", "1 Gbit/s", *as_text)
    (join,) = document(capsys, *options)["operators"]
    assert join["ratio"] == pytest.approx(1.0173, abs=1e-4)
    assert (join["device"], join["without_tie_band"]) == ("cpu", "gpu")
    done, out, _ = explain(capsys, *options)
    assert done
    assert "preset 1, tie band 0.02\n" in out
    assert "join-1: on the cpu by the tie band of 0.02, without it on the gpu\n" in out
    (join,) = document(capsys, *options, "--tie-band", "0")["operators"]
    assert (join["device"], join["without_tie_band"]) == ("gpu", "gpu")
    hardware.write_text(f"{text}tie_band: 0.01\n")
    assert document(capsys, *options)["operators"][0]["device"] == "gpu"
    assert document(capsys, *options, "--tie-band", "0.5")["operators"][0]["device"] == "cpu"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("selec 1 from x",), "SQL: Parser Error: syntax error"),
        (("select x from nowhere",), "no statistics of table nowhere: give its size"),
        ((" ",), "0 SQL statements; a graph needs exactly one"),
        (("select 1 from t; select 2 from t", "--table", "t=1:1"), "2 SQL statements; a graph needs exactly one"),
        (("set threads = 1",), "SQL: SET is no query; one SELECT is expected"),
        (("prepare a as select 1",), "SQL: PREPARE is no query; one SELECT is expected"),
        (("missing.sql",), "missing.sql: No such file or directory"),
        (("missing.py",), "missing.py: no such script"),
        (("select t.a from t", "--table", "t=0:0"), "table t: 0 rows"),
        (
            ("select t.a from t", "--table", "t=many"),
            "table t: no such file: many (expected NAME=ROWS:BYTES or NAME=FILE)",
        ),
        (("select t.a from t", "--table", "t=1:2.4 G"), "'2.4 G' is not an"),
        (("select t.a from t", "--table", "t="), "'t=' is not a table: expected NAME=ROWS:BYTES or NAME=FILE"),
        (("select t.a from t", "--table", "t=1:1", "--preset", "0.5"), "a preset of 0.5 is not finite and at least 1"),
        (
            ("select t.a from t", "--table", "t=1:1", "--tie-band", "-1"),
            "a tie band of -1.0 is not finite and at least 0",
        ),
        (("select t.a from t", "--table", "t=1:1", "--skew", "0"), "a skew of 0.0 is not at least 1"),
        (("select t.a from t", "--table", "t=1:1", "--join", "sort"), "joins are hash-join, square, linear"),
        (("select t.a from t", "--table", "t=1:1", "--t", "filter=fast"), "--t filter=fast: KIND=SECONDS"),
        (("select t.a from t", "--table", "t=1:1", "--t", "filter=-1"), "t of filter: -1.0 s for 100 MB"),
        (("select t.a from t where t.b > 1", "--table", "t=1:1", "--rate", "-1 Gbit/s"), "rate"),
    ],
)
def test_wrong_input_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], hardware: str, arguments: tuple[str, ...], problem: str
) -> None:
    done, out, err = explain(capsys, "--hardware", hardware, "--rate", "1 Gbit/s", *arguments)
    assert not done
    assert not out
    assert any(one in err for one in problem.split("|"))
    assert "Traceback" not in err


def test_compressing_accelerator_is_a_choice_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = (*FILTER, "-n", "1000", "--assume", "gpu")
    found = {}
    for rate in ("10 Mbit/s", "10 Gbit/s"):
        (one,) = document(capsys, *options, "--rate", rate)["operators"]
        assert one["times"]["gpu"]["compression_s"] == 0 < one["times"]["gpu-packed"]["compression_s"]
        assert one["device"] == min(one["times"], key=lambda name: one["times"][name]["total_s"])
        found[rate] = one["device"]
    assert found["10 Mbit/s"] == "gpu-packed"
    assert found["10 Gbit/s"] != "gpu-packed"
