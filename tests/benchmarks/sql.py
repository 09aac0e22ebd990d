"""Split statements against one DuckDB: random ones, and the 22 of TPC-H over three workers.

Usage: python -m tests.benchmarks.sql [--statements N] [--scale F] [--seed N] [--only-spark]

`statements_different` and `tracebacks` are to be 0. Of TPC-H the largest table of each statement is sharded; a
statement that is not split is named with the reason. Without Spark everything runs in this process, by the engine of
the workers. With Spark (`make .venv-spark/.ready`) TPC-H also runs over three processes, by the split or on Spark, and
random statements that the split refuses are compared with DuckDB; `--only-spark` leaves out the rest.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from controller.acceleration.running.clusters import shards_of
from controller.acceleration.running.engines.duckdb_tables import DuckDbBackend
from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.sessions import SparkSession
from controller.acceleration.running.statements.splitting import split_statement
from tests.benchmarks.accelerating import on_spark
from tests.benchmarks.accelerating.tpch import data as tpch
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS
from tests.controller.acceleration.running.spark.environment import is_there, with_spark
from tests.controller.acceleration.running.spark.generated import compared_on_spark
from tests.controller.acceleration.running.statements.generated import (
    Comparison,
    Statement,
    Statements,
    assert_same,
    rows_of,
    tables_of,
)

_PER_TABLE = 25
_WORKERS = 3
_MEMORY = 4 << 30


def random_statements(number: int, seed: int) -> dict[str, int]:
    """Compare random statements; return how many were compared, split, different, or ended in another error."""
    rng = random.Random(seed)
    generator, counts = Statements(rng), dict.fromkeys(("compared", "split", "different", "tracebacks"), 0)
    while counts["compared"] < number:
        comparison = Comparison(tables_of(rng), rng.choice((1, 2, 3, 5)))
        for _ in range(_PER_TABLE):
            statement = generator.statement()
            counts["compared"] += 1
            try:
                counts["split"] += comparison.is_split(statement)
            except AssertionError as error:
                counts["different"] += 1
                print(f"different: {error}", file=sys.stderr)
            except Exception as error:  # noqa: BLE001 - any other error is what is counted
                counts["tracebacks"] += 1
                print(f"{statement.sql}: {error!r}", file=sys.stderr)
    return counts


def tpch_statements(scale: float) -> dict[str, str]:
    """Return for each statement its seconds if it is split and returns DuckDB's rows, or why it is not."""
    outcomes = {}
    with tempfile.TemporaryDirectory(prefix="millrace-sql-") as folder, tpch.generated(Path(folder), scale) as whole:
        names = [row[0] for row in whole.execute("SHOW TABLES").fetchall()]
        tables: dict[str, pa.Table] = {name: whole.table(name).to_arrow_table() for name in names}
        for name, sql in STATEMENTS.items():
            try:
                split = split_statement(sql, tables)
            except StatementError as error:
                outcomes[name] = str(error)
                continue
            backends = [DuckDbBackend(split, _MEMORY, 1) for _ in range(_WORKERS)]
            for backend, shard in zip(backends, shards_of(tables[split.sharded], _WORKERS), strict=True):
                for each, table in tables.items():
                    backend.load(each, shard if each == split.sharded else table)
            begun_s = time.perf_counter()
            result = backends[0].finish(backends[0].merge([backend.partial() for backend in backends]))
            taken_s = time.perf_counter() - begun_s
            try:
                assert_same(Statement(sql), rows_of(result), rows_of(whole.sql(sql).to_arrow_table()))
            except AssertionError as error:
                outcomes[name] = f"different: {error}"
            else:
                outcomes[name] = f"{split.sharded} sharded, {taken_s:.2f} s"
    return outcomes


def _on_spark(statements: int, scale: float, seed: int) -> dict[str, Any]:
    """Return the figures of Spark: TPC-H by either way, and random statements that mostly only Spark takes."""
    with with_spark():
        figures = on_spark.figures(on_spark.outcomes(scale))
        with SparkSession("local[2]", settings={"spark.sql.shuffle.partitions": "2"}) as session:
            counts = compared_on_spark(session, seed, statements)
    return figures | {f"spark_{name}": counts[name] for name in ("same", "different", "error", "refused")}


def main() -> int:
    """Print all figures as JSON; 1 if a result is different."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=20_000)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only-spark", action="store_true")
    options = parser.parse_args()
    if options.only_spark:
        found = _on_spark(options.statements, options.scale, options.seed)
        print(json.dumps(found))
        return int(found["tpch_same"] != len(STATEMENTS) or bool(found["spark_different"] or found["tracebacks"]))
    counts = random_statements(options.statements, options.seed)
    outcomes = tpch_statements(options.scale)
    figures = {f"statements_{name}": number for name, number in counts.items() if name != "tracebacks"}
    figures |= {
        "tracebacks": counts["tracebacks"],
        "tpch_split": sum("sharded" in outcome for outcome in outcomes.values()),
        "tpch_different": sum("different" in outcome for outcome in outcomes.values()),
    }
    if is_there():
        more = _on_spark(options.statements // 20, options.scale, options.seed)
        figures |= more | {"tracebacks": counts["tracebacks"] + more["tracebacks"]}
        counts["different"] += more["spark_different"] + len(STATEMENTS) - more["tpch_same"]
    print(json.dumps(figures | {"tpch": outcomes}))
    return int(counts["different"] + counts["tracebacks"] + figures["tpch_different"] > 0)


if __name__ == "__main__":
    sys.exit(main())
