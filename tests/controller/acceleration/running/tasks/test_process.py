"""The process of a SQL task: rows on its output, how it ran in a file, and one line for whatever is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.tasks.running import run_query
from controller.acceleration.running.tasks.values import (
    HERE,
    QUERY_FILE,
    RAN_FILE,
    SECRET,
    Query,
    QueryTable,
    Ran,
    Way,
    decode_ran,
)
from controller.apiserver.resources.operator_devices import VARIABLE
from tests.controller.acceleration.running.spark.environment import with_spark
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[5]
SQL = (
    "SELECT kind, sum(price), count(*) FROM lines JOIN items USING (item) WHERE price < 500 GROUP BY kind ORDER BY kind"
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, QueryTable]:
    """Write two tables, as they are when a task is planned."""
    folder, rng = tmp_path_factory.mktemp("tables"), np.random.default_rng(1)
    lines = pa.table({"item": rng.integers(0, 50, 10_000), "price": rng.integers(0, 1000, 10_000)})
    pq.write_table(lines, folder / "lines.parquet")
    pq.write_table(pa.table({"item": np.arange(50), "kind": np.arange(50) % 3}), folder / "items.parquet")
    columns = {"lines": {"item": "BIGINT", "price": "BIGINT"}, "items": {"item": "BIGINT", "kind": "BIGINT"}}
    rows = {"lines": 10_000, "items": 50}
    return {
        name: QueryTable(file=str(folder / f"{name}.parquet"), rows=rows[name], columns=columns[name]) for name in rows
    }


def process(
    folder: Path,
    query: Query,
    devices: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    (folder / QUERY_FILE).write_bytes(msgspec.json.encode(query))
    return subprocess.run(
        [sys.executable, "-m", "controller.acceleration.running.tasks.process"],
        cwd=folder,
        env=dict(os.environ)
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            VARIABLE: json.dumps(devices or {}),
        }
        | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )


def ran(folder: Path) -> Ran:
    return decode_ran((folder / RAN_FILE).read_bytes())


def expected(tables: Mapping[str, QueryTable], sql: str) -> list[str]:
    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.execute(f"CREATE VIEW {name} AS FROM '{table.file}'")
        return ["\t".join(map(str, row)) for row in connection.sql(sql).fetchall()]


def test_units_share_a_table(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    done = process(tmp_path, Query(sql=SQL, tables=tables, sharded="lines", workers=2))
    assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, SQL))
    assert (ran(tmp_path).way, ran(tmp_path).workers, ran(tmp_path).rows) == (Way.SPLIT, 2, 3)
    assert done.stderr.startswith("3 rows by 2 workers in ")


def test_a_step_runs_on_its_device_or_says_why_not(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    pytest.importorskip("torch")
    devices = {"filter-1": "gpu", "aggregate-1": "gpu", "join-1": "cpu", "final-sort-1": "gpu"}
    done = process(tmp_path, Query(sql=SQL, tables=tables, sharded="lines", workers=2), devices)
    assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, SQL))
    steps = {step.step: step for step in ran(tmp_path).steps}
    assert steps.keys() == {"filter-1", "aggregate-1", "final-sort-1"}
    assert steps["filter-1"].device in {"torch-cpu", "torch-cuda"}
    assert steps["filter-1"].seconds is not None
    assert (steps["final-sort-1"].device, steps["final-sort-1"].why) == ("cpu", "a column is HUGEINT")
    if steps["filter-1"].device == "torch-cpu":
        assert "torch-cpu stands in for gpu" in done.stderr


def test_what_is_not_split_runs_in_one_duckdb(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    sql = "SELECT item, rank() OVER (ORDER BY price, item) FROM lines ORDER BY 2, 1 LIMIT 3"
    done = process(tmp_path, Query(sql=sql, tables=tables))
    assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, sql))
    assert (ran(tmp_path).way, ran(tmp_path).why) == (Way.WHOLE, "not split: WINDOW cannot be split across workers")


def test_what_is_not_split_runs_on_spark_if_it_is_there(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    sql = "SELECT item, rank() OVER (ORDER BY price, item) FROM lines ORDER BY 2, 1 LIMIT 3"
    with with_spark():
        done = process(tmp_path, Query(sql=sql, tables=tables, spark=HERE, memory_bytes=1 << 30))
    assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, sql)), done.stderr
    assert (ran(tmp_path).way, ran(tmp_path).why) == (Way.SPARK, "not split: WINDOW cannot be split across workers")
    assert "by Apache Spark on 1 worker (not split: WINDOW" in done.stderr


def test_what_spark_would_answer_otherwise_stays_in_duckdb(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    sql = "SELECT string_agg(item, ',' ORDER BY item, price) FROM lines WHERE item < 1"
    done = process(tmp_path, Query(sql=sql, tables=tables, spark=HERE))
    assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, sql)), done.stderr
    assert ran(tmp_path).way is Way.WHOLE
    assert ran(tmp_path).why.count("string_agg") >= 1


def test_missing_spark_is_one_line(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    sql = "SELECT item, rank() OVER (ORDER BY price, item) FROM lines"
    done = process(
        tmp_path, Query(sql=sql, tables=tables, spark=HERE), environment={"PATH": "/nowhere", "JAVA_HOME": ""}
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "spark" in done.stderr.lower()
    assert done.stderr.count("\n") == 1


def test_running_workers_are_used_with_their_secret(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    with LocalWorkers(2) as workers:
        query = Query(sql=SQL, tables=tables, sharded="lines", workers=2, addresses=workers.addresses)
        done = process(tmp_path, query, environment={SECRET: workers.secret.hex()})
        assert (done.returncode, done.stdout.splitlines()) == (0, expected(tables, SQL))
        wrong = process(tmp_path, query, environment={SECRET: "00" * 32})
    assert wrong.returncode == 1
    assert wrong.stderr.count("\n") == 1
    assert workers.secret.hex() not in wrong.stderr


def test_a_dead_worker_is_named(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    with LocalWorkers(2) as workers:
        workers.processes[1].kill()
        workers.processes[1].wait()
        query = Query(sql=SQL, tables=tables, sharded="lines", workers=2, addresses=workers.addresses)
        done = process(tmp_path, query, environment={SECRET: workers.secret.hex()})
    assert (done.returncode, done.stdout) == (1, "")
    assert workers.addresses[1] in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_table_that_has_grown_is_noted(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    changed = tables | {"lines": msgspec.structs.replace(tables["lines"], rows=9_999)}
    done = process(tmp_path, Query(sql=SQL, tables=changed, sharded="lines"))
    assert done.stdout.splitlines() == expected(tables, SQL)
    assert "table lines has 10000 rows; 9999 when the task was planned" in done.stderr


@pytest.mark.parametrize(
    ("changes", "sql", "problem"),
    [
        ({"columns": {"item": "BIGINT", "price": "DOUBLE"}}, SQL,
         "column price is BIGINT; DOUBLE when the task was planned"),
        ({"columns": {"item": "BIGINT", "price": "BIGINT", "tax": "BIGINT"}}, SQL,
         "column tax is missing; BIGINT when the task was planned"),
        ({"columns": {"item": "BIGINT"}}, SQL, "columns item, price; item when the task was planned"),
        ({"file": "/no/lines.parquet"}, SQL, "table lines: no such file here: /no/lines.parquet"),
        ({}, "SELECT price / 0 FROM nothing", "nothing"),
        ({}, "SELECT sum(price::TINYINT) FROM lines", "Conversion Error"),
    ],
)  # fmt: skip
def test_what_has_changed_or_is_wrong_is_one_line(
    tables: dict[str, QueryTable], changes: dict[str, object], sql: str, problem: str
) -> None:
    changed = tables | {"lines": msgspec.structs.replace(tables["lines"], **changes)}
    with pytest.raises(RunError) as raised:
        run_query(Query(sql=sql, tables=changed, sharded="lines"), {})
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_an_error_is_the_last_line_and_nothing_is_left(tmp_path: Path, tables: dict[str, QueryTable]) -> None:
    done = process(tmp_path, Query(sql="SELECT price FROM nothing", tables=tables, sharded="lines"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("millrace: SQL: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / RAN_FILE).exists()


@pytest.mark.parametrize("sharded", ["", "lines"])
@pytest.mark.parametrize("sql", ["SELECT * FROM read_text('/etc/passwd')", "SELECT * FROM '/etc/passwd'"])
def test_a_statement_reads_no_other_files(tables: dict[str, QueryTable], sql: str, sharded: str) -> None:
    with pytest.raises(RunError) as raised:
        run_query(Query(sql=sql, tables=tables, sharded=sharded), {})
    assert "root" not in str(raised.value)
