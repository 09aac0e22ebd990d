"""Runs a SQL task: over workers if it is split, else on Spark if the centre has it, or in one DuckDB."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from controller.acceleration.running.channels import SECRET_BYTES, Limits
from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.errors import RunError, StatementError
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.spark.choosing import spark_instead
from controller.acceleration.running.spark.sessions import SparkSession
from controller.acceleration.running.spark.standalone import SparkCluster
from controller.acceleration.running.spark.translating import SparkStatement
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.statements.literals import quoted
from controller.acceleration.running.statements.splitting import LOSSLESS
from controller.acceleration.running.tasks.values import (
    HERE,
    SECRET,
    SPARK_SETTINGS,
    Query,
    QueryTable,
    Ran,
    RanStep,
    Way,
)
from controller.acceleration.running.values import Plan, Run, StepRun
from controller.acceleration.values import CPU

FAN_IN: Final = 10
_LEAST_SPARK_MB: Final = 1024
_STAND_IN: Final = "torch-cpu"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A query with its tables, what is to be said about them, and when that began."""

    query: Query
    tables: Mapping[str, pa.Table]
    notes: tuple[str, ...]
    began_s: float


def run_query(query: Query, devices: Mapping[str, str]) -> tuple[pa.Table, Ran]:
    """Return a task's rows, and how they were computed; raise RunError, StatementError.

    `devices` are those chosen for its operators, by name.
    """
    began_s = time.perf_counter()
    tables, notes = {}, []
    for name, table in query.tables.items():
        tables[name] = load(name, table)
        if table.rows not in {None, tables[name].num_rows}:
            notes.append(f"table {name} has {tables[name].num_rows} rows; {table.rows} when the task was planned")
    elsewhere = {name: device for name, device in devices.items() if device != CPU}
    loaded = _Loaded(query, tables, tuple(notes), began_s)
    try:
        plan = plan_of_statement(query.sql, tables, query.sharded or None, elsewhere)
    except StatementError as reason:
        return _unsplit(loaded, reason)
    return _split(loaded, plan)


def load(name: str, table: QueryTable) -> pa.Table:
    """Return a table's rows; raise RunError if its columns are no longer those of the plan."""
    if not Path(table.file).is_file():
        raise RunError(f"table {name}: no such file here: {table.file}")
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute(LOSSLESS)
            relation = connection.from_query("SELECT * FROM query_table($1)", params=[table.file])
            columns = dict(zip(relation.columns, map(str, relation.types), strict=True))
            if table.columns and columns != table.columns:
                raise RunError(f"table {name}: {table.file}: {_difference(table.columns, columns)}")
            return relation.to_arrow_table()
    except duckdb.Error as error:
        raise RunError(f"table {name}: {table.file}: {str(error).splitlines()[0]}") from None


def _difference(planned: Mapping[str, str], columns: Mapping[str, str]) -> str:
    for column, kind in planned.items():
        if columns.get(column) != kind:
            return f"column {column} is {columns.get(column, 'missing')}; {kind} when the task was planned"
    return f"columns {', '.join(columns)}; {', '.join(planned)} when the task was planned"


def _split(loaded: _Loaded, plan: Plan) -> tuple[pa.Table, Ran]:
    query = loaded.query
    limits = Limits(most_table_bytes=query.memory_bytes, most_held_bytes=query.memory_bytes)
    with (
        _workers(query) as (addresses, secret),
        Cluster(addresses, secret, plan, limits=limits, deadline_s=query.deadline_s) as cluster,
    ):
        cluster.load(loaded.tables)
        loaded_s = time.perf_counter()
        by_switch: Run | str = query.no_switch
        if query.job:
            by_switch = cluster.run_by_switch(query.job_service, query.job, query.hosts)
        outcome = cluster.run(FAN_IN) if isinstance(by_switch, str) else by_switch
        table, finished = cluster.result_with_steps()
        seconds = time.perf_counter() - loaded_s
    steps = _steps([*(run for worker in outcome.workers for run in worker.steps), *finished])
    return table, Ran(
        way=Way.SPLIT,
        workers=len(addresses),
        rows=table.num_rows,
        load_s=loaded_s - loaded.began_s,
        seconds=seconds,
        by_switch=isinstance(by_switch, Run),
        steps=steps,
        notes=(
            *loaded.notes,
            *_stand_in(steps, plan.devices),
            *([f"sums were planned for switches: {by_switch}"] if by_switch and isinstance(by_switch, str) else []),
        ),
    )


def _unsplit(loaded: _Loaded, reason: StatementError) -> tuple[pa.Table, Ran]:
    """Run a statement that is not split: on Spark if that is there and takes it, else in one DuckDB."""
    if loaded.query.spark:
        try:
            statement = spark_instead(loaded.query.sql, loaded.tables, reason)
        except StatementError as error:
            return _whole(loaded, str(error))
        return _on_spark(loaded, statement, str(reason))
    return _whole(loaded, str(reason))


def _on_spark(loaded: _Loaded, statement: SparkStatement, why: str) -> tuple[pa.Table, Ran]:
    query = loaded.query
    with ExitStack() as stack:
        if query.spark == HERE:
            memory_mb = max(query.memory_bytes >> 20, _LEAST_SPARK_MB)
            cluster = SparkCluster(query.workers, cores=query.threads, memory_mb=memory_mb)
            session = SparkSession.of(stack.enter_context(cluster), deadline_s=query.deadline_s)
        else:
            # Taken out, so that no process started from here inherits it.
            settings = json.loads(os.environ.pop(SPARK_SETTINGS, "{}"))
            session = SparkSession(query.spark, settings=settings, deadline_s=query.deadline_s)
        stack.enter_context(session)
        session.load({name: loaded.tables[name] for name in statement.tables})
        loaded_s = time.perf_counter()
        outcome = session.run(statement)
    return outcome.table, Ran(
        way=Way.SPARK,
        workers=query.workers,
        rows=outcome.table.num_rows,
        load_s=loaded_s - loaded.began_s,
        seconds=outcome.run_time_s,
        why=_not_split(why),
        notes=loaded.notes,
    )


def _not_split(why: str) -> str:
    return f"not split: {why.removeprefix('SQL: ')}"[:1000]


def _whole(loaded: _Loaded, why: str) -> tuple[pa.Table, Ran]:
    query = loaded.query
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": query.workers * query.threads,
        "memory_limit": f"{query.workers * query.memory_bytes} B",
    }
    with duckdb.connect(":memory:", config=config) as connection:
        connection.execute(LOSSLESS)
        for name, table in loaded.tables.items():
            connection.register("_arriving", table)
            connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM _arriving")
            connection.unregister("_arriving")
        # A statement reads the task's tables, and no file or variable of the machine.
        for setting in ("enable_external_access = false", "lock_configuration = true"):
            connection.execute(f"SET {setting}")
        loaded_s = time.perf_counter()
        try:
            table = connection.sql(query.sql).to_arrow_table()
        except duckdb.Error as error:
            raise RunError(f"SQL: {str(error).splitlines()[0]}") from None
        seconds = time.perf_counter() - loaded_s
    return table, Ran(
        way=Way.WHOLE,
        workers=1,
        rows=table.num_rows,
        load_s=loaded_s - loaded.began_s,
        seconds=seconds,
        why=_not_split(why),
        notes=loaded.notes,
    )


@contextmanager
def _workers(query: Query) -> Iterator[tuple[tuple[str, ...], bytes]]:
    """Yield addresses of workers, and their secret."""
    if not query.addresses:
        with LocalWorkers(query.workers, threads=query.threads) as workers:
            yield workers.addresses, workers.secret
        return
    # Taken out, so that no process started from here inherits it.
    secret = bytes.fromhex(os.environ.pop(SECRET, ""))
    if len(secret) != SECRET_BYTES:
        raise RunError(f"{SECRET}: a secret of {len(secret)} bytes, not {SECRET_BYTES}")
    yield query.addresses[: query.workers], secret


def _steps(runs: list[StepRun]) -> tuple[RanStep, ...]:
    """Return one entry for each step: the slowest worker's, or that of a worker on which DuckDB ran it."""
    steps: dict[str, RanStep] = {}
    for run in runs:
        step = RanStep(step=run.step, device=run.device, seconds=run.seconds, why=run.why[:1000])
        before = steps.get(run.step)
        if before is None or (before.seconds is not None and (step.seconds or 1e9) > before.seconds):
            steps[run.step] = step
    return tuple(steps.values())


def _stand_in(steps: tuple[RanStep, ...], planned: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note if a processor stood in for a planned device."""
    kinds = sorted({planned.get(step.step, "") for step in steps if step.device == _STAND_IN})
    return (f"{_STAND_IN} stands in for {', '.join(kinds)}: torch finds no such device here",) if kinds else ()
