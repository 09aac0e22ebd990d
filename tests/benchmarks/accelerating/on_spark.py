"""The 22 statements of TPC-H over three workers, by the split or on Spark, and both where both can.

Timed on either side, with warm sessions and tables in the workers' memory: from the statement's text until its rows
are a table at the client, the median of several runs after one that is not counted. On either side a worker has one
core: three processes of Millrace, three executors of a standalone cluster.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.errors import RunError, StatementError
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.spark.sessions import SparkSession
from controller.acceleration.running.spark.standalone import SparkCluster
from controller.acceleration.running.spark.translating import spark_statement
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.values import Plan
from tests.benchmarks.accelerating.tpch import data as tpch
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS
from tests.controller.acceleration.running.statements.generated import Statement, assert_same, rows_of

WORKERS: Final = 3
RUNS: Final = 5
_DEADLINE_S: Final = 600.0
_FAN_IN: Final = 10


@dataclass(slots=True)
class Outcome:
    """A statement by both ways: median seconds, None where it is refused or fails, and the reason of either."""

    reason: str = ""
    split_s: float | None = None
    spark_s: float | None = None
    is_split_same: bool = False
    is_spark_same: bool = False
    tracebacks: int = 0

    @property
    def way(self) -> str:
        """The way that `millrace accel run --spark` takes."""
        return "Spark" if self.reason else "split"

    @property
    def is_same(self) -> bool:
        """True if that way returns DuckDB's rows."""
        return self.is_spark_same if self.reason else self.is_split_same


def outcomes(scale: float) -> dict[str, Outcome]:
    """Return the outcome of each statement at a scale."""
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory(prefix="millrace-sql-") as folder, tpch.generated(Path(folder), scale) as whole:
        names = [row[0] for row in whole.execute("SHOW TABLES").fetchall()]
        tables: dict[str, pa.Table] = {name: whole.table(name).to_arrow_table() for name in names}
        for name in STATEMENTS:
            found[name] = Outcome()
        with LocalWorkers(WORKERS) as workers:
            for name, sql in STATEMENTS.items():
                _guarded(name, partial(_split, workers, sql, tables, whole, found[name]), found[name])
        with SparkCluster(WORKERS) as cluster, SparkSession.of(cluster, deadline_s=_DEADLINE_S) as session:
            session.load(tables, is_held=True)
            for name, sql in STATEMENTS.items():
                _guarded(name, partial(_spark, session, sql, tables, whole, found[name]), found[name])
    return found


def _guarded(name: str, run: Callable[[], None], outcome: Outcome) -> None:
    try:
        run()
    except RunError as error:
        print(f"{name}: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - any other error is what is counted
        outcome.tracebacks += 1
        print(f"{name}: {error!r}", file=sys.stderr)


def _split(
    workers: LocalWorkers, sql: str, tables: dict[str, pa.Table], whole: duckdb.DuckDBPyConnection, outcome: Outcome
) -> None:
    try:
        plan: Plan = plan_of_statement(sql, tables)
    except StatementError as error:
        outcome.reason = str(error)
        return
    with Cluster(workers.addresses, workers.secret, plan, deadline_s=_DEADLINE_S) as cluster:
        cluster.load(tables)

        def run() -> pa.Table:
            plan_of_statement(sql, tables)
            cluster.run(_FAN_IN)
            return cluster.result()

        outcome.split_s, table = _timed(run)
    outcome.is_split_same = _is_same(sql, table, whole)


def _spark(
    session: SparkSession, sql: str, tables: dict[str, pa.Table], whole: duckdb.DuckDBPyConnection, outcome: Outcome
) -> None:
    outcome.spark_s, table = _timed(lambda: session.run(spark_statement(sql, tables)).table)
    outcome.is_spark_same = _is_same(sql, table, whole)


def _timed(run: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    table, seconds = run(), []
    for _ in range(RUNS):
        begun_s = time.perf_counter()
        table = run()
        seconds.append(time.perf_counter() - begun_s)
    return statistics.median(seconds), table


def _is_same(sql: str, table: pa.Table, whole: duckdb.DuckDBPyConnection) -> bool:
    expected = whole.sql(sql).to_arrow_table()
    try:
        assert_same(Statement(sql), rows_of(table), rows_of(expected))
    except AssertionError as error:
        print(f"different: {error}", file=sys.stderr)
        return False
    return bool(table.schema == expected.schema)


def figures(found: dict[str, Outcome]) -> dict[str, object]:
    """Return figures and the table of all statements."""
    ratios = [each.spark_s / each.split_s for each in found.values() if each.split_s and each.spark_s]
    rows = [
        [name, each.way, _seconds(each.split_s), _seconds(each.spark_s), each.reason.removeprefix("SQL: ")]
        for name, each in found.items()
    ]
    return {
        "tpch_same": sum(each.is_same for each in found.values()),
        "tpch_same_on_spark": sum(each.is_spark_same for each in found.values()),
        "split_over_spark": round(statistics.geometric_mean(ratios), 1) if ratios else None,
        "split_over_spark_least": round(min(ratios), 1) if ratios else None,
        "tracebacks": sum(each.tracebacks for each in found.values()),
        "tpch_ways": rows,
    }


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
