"""`millrace accel run --compare` with a network: option combinations, workers' hosts, wrong input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.apps.cli import main

RACKS = """
millrace: 1
name: racks
defaults: {access: {rate: 100 Mbit/s, delay: 10 us}}
switches: [{name: s1}, {name: s2}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s2}, {name: h3, switch: s1}]
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 1 ms}]
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "racks.yaml").write_text(RACKS)
    (tmp_path / "half.yaml").write_text("{millrace: 1, network_efficiency: 0.5}")
    (tmp_path / "three.yaml").write_text("{millrace: 1, machines: [h1, h2, h3]}")
    pq.write_table(pa.table({"value": np.arange(1000), "place": np.arange(1000) % 7}), tmp_path / "data.parquet")
    return "data=data.parquet"


def run(
    capsys: pytest.CaptureFixture[str], table: str, *arguments: str, statement: str = "select * from data"
) -> tuple[bool, str, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["millrace", "accel", "run", statement, "--table", table, *arguments])
        patch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as end:
            main()
    captured = capsys.readouterr()
    return not end.value.code, captured.out, captured.err


def test_run_is_compared_with_the_path_times_of_a_topology(capsys: pytest.CaptureFixture[str], table: str) -> None:
    options = ("--processes", "2", "--compare", "--format", "json", "--topology", "racks.yaml")
    transfers = []
    for more in ((), ("--hardware", "half.yaml")):
        done, out, err = run(capsys, table, *options, *more)
        assert done, err
        single, both = json.loads(out)
        assert (single["machines"], single["transfer s"], both["machines"]) == (1, 0.0, 2)
        assert "local workers represent h1, h3" in err
        assert "free bandwidth between machines is nominal" in err
        transfers.append(both["transfer s"])
    # Half of the rows, 8 kB, over 100 Mbit/s and over half of that, plus the processors' share.
    assert transfers[0] >= 8e3 * 8 / 100e6
    assert transfers[1] >= 8e3 * 8 / 50e6


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--topology", "racks.yaml"), "--topology requires --compare"),
        (("--rate", "1 Gbit/s"), "--rate requires --compare"),
        (("--compare", "--topology", "racks.yaml", "--rate", "1 Gbit/s"), "--rate and --topology"),
        (("--compare", "--feed", "unix:x"), "--feed requires --topology"),
        (("--compare", "--topology", "racks.yaml", "--server", "unix:x"), "--server requires --feed"),
        (("--compare", "--rate", "-1 Gbit/s"), "--rate: '-1 Gbit/s' is not a rate"),
        (("--compare", "--topology", "nowhere.yaml"), "nowhere.yaml"),
        (("--compare", "--topology", "racks.yaml", "--hardware", "three.yaml"), "3 named, but 2 workers"),
        (("--compare", "--topology", "racks.yaml", "--feed", "unix:/nobody/here"), "/nobody/here"),
    ],
)
def test_a_network_that_cannot_be_is_one_clear_line(
    capsys: pytest.CaptureFixture[str], table: str, arguments: tuple[str, ...], problem: str
) -> None:
    done, out, err = run(capsys, table, "--processes", "2", *arguments)
    assert not done
    assert not out
    assert problem in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err


def test_json_states_numbers_that_it_lacks_and_loses_no_column(capsys: pytest.CaptureFixture[str], table: str) -> None:
    statement = (
        "select 'inf'::double as a, ['-inf'::double] as b, {'x': 'nan'::double} as c, max(value) as m, 1 as a from data"
    )
    options = ("--processes", "2", "--sharded", "DATA", "--format", "json")
    done, out, err = run(capsys, table, *options, statement=statement)
    assert done, err
    row = {"a": "Infinity", "b": ["-Infinity"], "c": {"x": "NaN"}, "m": 999, "a_1": 1}
    assert json.loads(out) == [row]


def test_statement_without_a_split_is_refused_in_one_line(capsys: pytest.CaptureFixture[str], table: str) -> None:
    done, _, err = run(capsys, table, "--processes", "2", statement="select median(value) from data")
    assert not done
    assert err.splitlines()[-1] == (
        "millrace: SQL: aggregate median cannot be split across workers; with --spark it runs on Apache Spark"
    )


def test_table_keeps_all_digits_of_a_sum(capsys: pytest.CaptureFixture[str], table: str) -> None:
    """0.1 is no binary fraction: its noise is not a digit."""
    statement = (
        "select sum(value * 10.0::double + 0.25::double) as a, sum(value)::double + 0.1 as b, avg(place)::float as c,"
        " count(*) * 0.1::double as d from data"
    )
    done, out, err = run(capsys, table, "--processes", "2", statement=statement)
    assert done, err
    assert "4995250 " in out
    assert "499500.1 " in out
    assert "100 " in out
