"""Predicted against measured ratio of real runs: n machines against one, by the model that decides where operators run.

Machines are processes in network namespaces, on links that TBF shapes in both directions. What a machine computes with
is a fixed share of a core, a quota of its control group, so small that all of them fit in the cores that there are: two
machines never wait for one another's processor, as they would on plain cores. The ratio is the time of one machine with
all the data over that of n machines with a part each, that reduce over a tree of fan-in k. The prediction takes t of a
shard and of a quarter of one, alone on one machine, t of merging copies of what they yield, and the links' rate less
what headers take; per-path transfer. Data is given before, under no quota and over links that are not shaped;
results are held against one DuckDB over all the data; the time ends when the root has merged.

    sudo .venv/bin/python -m tests.benchmarks.accelerating.ratios
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.comparing import Comparison, Processing, members, predicted, processed
from controller.acceleration.running.measuring import PARTS, processing
from controller.acceleration.running.operators import plan_of_operator, plan_of_statement, sql_of
from controller.acceleration.running.shares import Shares
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.values import Engine, Operator, OperatorKind, Plan, Trial
from dataplane.fabric.kernel import namespaces
from tests.benchmarks.accelerating.links import GOODPUT, Links

MACHINES: Final = 8
CPU_MILLI: Final = 200
"""CPU share of each machine, in thousandths of a core: all machines together have 1.6 cores."""
GROUPS: Final = 20_000
TIMES: Final = 3
_PORT: Final = 7707
_MBIT: Final = 1e6

FILTER: Final = Operator(kind=OperatorKind.FILTER, column="value", below=100.0)
AGGREGATE: Final = Operator(kind=OperatorKind.AGGREGATE, column="place", sums=("value", "amount"))
JOIN: Final = Operator(kind=OperatorKind.JOIN, column="place", other="places")
TOP: Final = Operator(kind=OperatorKind.SORT, column="amount", limit=20_000)
FEW: Final = Operator(kind=OperatorKind.SORT, column="amount", limit=100)
"""DuckDB passes over rows that cannot be among the first: its time grows less than any class of the model says."""
SORT: Final = Operator(kind=OperatorKind.SORT, column="amount")
MATCHES: Final = "SELECT * FROM data WHERE regexp_matches(CAST(amount AS VARCHAR), '17.*2')"
SUMMARY: Final = """SELECT place, count(*) AS rows, min(amount) AS low, max(amount) AS high, avg(value) AS mean,
    sum(length(CAST(amount AS VARCHAR))) AS digits FROM data GROUP BY place"""
TOTAL: Final = "SELECT count(*) AS rows, sum(amount) AS total FROM data WHERE CAST(amount AS VARCHAR) LIKE '%7_1%'"
_NAMES: Final = {MATCHES: "matches", SUMMARY: "summary", TOTAL: "total"}


@dataclass(frozen=True, slots=True)
class Case:
    """A statement or operator by an engine, over this many rows a machine; n, k, and the rate of links."""

    operator: Operator | str
    engine: Engine
    rows: int
    count: int
    fan_in: int
    rate_mbit: float

    @property
    def name(self) -> str:
        operator = self.operator
        return _NAMES[operator] if isinstance(operator, str) else operator.kind.value

    @property
    def sql(self) -> str:
        return self.operator if isinstance(self.operator, str) else sql_of(self.operator)

    def plan(self, tables: dict[str, pa.Table]) -> Plan:
        if isinstance(self.operator, str):
            return plan_of_statement(self.operator, tables, "data")
        return plan_of_operator(self.operator, tables, self.engine)


_ROWS: Final = 2_000_000
"""The most rows of a machine."""
_DUCKDB: Final = Engine.DUCKDB
CASES: Final = (
    *(Case(FILTER, Engine.NUMPY, _ROWS, count, 8, rate) for count, rate in ((2, 100), (4, 200))),
    *(Case(FILTER, _DUCKDB, _ROWS, count, 8, 200) for count in (4, 8)),
    # Rows of several rounds: each carries more than the one before.
    Case(FILTER, Engine.NUMPY, _ROWS, 8, 2, 200),
    Case(JOIN, _DUCKDB, 250_000, 8, 3, 200),
    *(Case(MATCHES, _DUCKDB, 500_000, count, 8, rate) for count, rate in ((2, 50), (4, 50), (8, 100))),
    *(
        Case(AGGREGATE, _DUCKDB, _ROWS, count, fan_in, rate)
        for count, fan_in, rate in ((2, 2, 50), (4, 4, 100), (8, 2, 100))
    ),
    *(
        Case(AGGREGATE, Engine.NUMPY, _ROWS, count, fan_in, rate)
        for count, fan_in, rate in ((4, 2, 50), (8, 8, 100), (8, 3, 200))
    ),
    # A link that is as fast as what a fifth of a core receives, or faster.
    Case(AGGREGATE, Engine.NUMPY, _ROWS, 8, 8, 400),
    *(Case(SUMMARY, _DUCKDB, 500_000, count, fan_in, rate) for count, fan_in, rate in ((4, 2, 100), (8, 4, 50))),
    *(Case(TOTAL, _DUCKDB, 1_000_000, count, 2, 50) for count in (4, 8)),
    *(Case(JOIN, Engine.NUMPY, 250_000, count, 8, rate) for count, rate in ((4, 200), (8, 200))),
    Case(JOIN, _DUCKDB, 1_000_000, 4, 4, 200),
    *(Case(TOP, Engine.NUMPY, 250_000, count, fan_in, rate) for count, fan_in, rate in ((4, 2, 50), (8, 2, 100))),
    Case(SORT, _DUCKDB, 250_000, 4, 4, 200),
    Case(SORT, Engine.NUMPY, 250_000, 8, 2, 200),
)


NO_CLASS: Final = (Case(FEW, _DUCKDB, _ROWS, 8, 4, 50),)
"""Cases outside the model's classes: measured and shown, but not in the mean."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A case and its figures."""

    case: Case
    comparison: Comparison
    is_exact: bool


def measure(cases: Sequence[Case] = CASES, *, quick: bool = False) -> dict[str, float]:
    """Return `ratio_mean_error`, the mean over cases of |predicted / measured - 1|; prints a table on stderr.

    Below the cases' table stands one of those that the model has no class for. With `quick` every sixth case runs.
    """
    cases = cases[::6] if quick else cases
    all_ = list(runs((*cases, *NO_CLASS)))
    measured, apart = all_[: len(cases)], all_[len(cases) :]
    show(measured, f"n machines against one; each has {CPU_MILLI / 1000:g} of a core")
    show(apart, "of no class of the model: not in the mean")
    if not all(measurement.is_exact for measurement in all_):
        raise AssertionError("a result is not what one DuckDB over all the data has")
    return {"ratio_mean_error": statistics.fmean(measurement.comparison.error for measurement in measured)}


def runs(cases: Sequence[Case]) -> Iterator[Measured]:
    """Run all cases on one set of machines; needs root."""
    with Links(MACHINES) as links:
        places = [(name, f"{address}:{_PORT}") for name, address in zip(links.namespaces, links.addresses, strict=True)]
        with LocalWorkers(MACHINES, places) as workers:
            pids = [process.pid for process in workers.processes]
            with Shares(pids, CPU_MILLI) as shares:
                bench = _Bench(links, shares, workers)
                for case in cases:
                    yield bench.measure(case)


class _Bench:
    """Measures one case after the other."""

    def __init__(self, links: Links, shares: Shares, workers: LocalWorkers) -> None:
        self._links, self._shares, self._workers = links, shares, workers
        self._tables = tables_of(MACHINES * _ROWS)

    def measure(self, case: Case) -> Measured:
        """Measure trials on parts of a shard, one machine with all, and all machines."""
        tables = self._tables | {"data": self._tables["data"].slice(0, case.rows * case.count)}
        plan = case.plan(tables)
        machines = members(case.count, case.fan_in, case.rate_mbit * GOODPUT / 1000)
        input_gb = tables["data"].nbytes / case.count / 1e9
        trials = [self._trial(case, plan, tables, part) for part in PARTS]
        machines = processed(machines, self._processing(case, plan, trials))
        single, all_ = predicted(plan, trials, input_gb, machines)
        one_s, _ = self._timed(case, plan, tables, 1)
        all_s, result = self._timed(case, plan, tables, case.count)
        return Measured(case, Comparison(single, all_, one_s, all_s), _is_exact(case.sql, tables, result))

    def _trial(self, case: Case, plan: Plan, tables: dict[str, pa.Table], part: int) -> Trial:
        """Time a part of a shard on one machine."""
        with self._cluster(plan, 1) as cluster:
            self._give(cluster, tables | {"data": tables["data"].slice(0, case.rows // part)})
            return cluster.trial(min(case.fan_in, case.count))

    def _processing(self, case: Case, plan: Plan, trials: Sequence[Trial]) -> Processing:
        """Have one machine send to another one, over links that are shaped."""

        def making(count: int) -> Cluster:
            cluster = self._cluster(plan, count)
            self._shares.limited(is_limited=True)
            self._links.shape(case.rate_mbit * _MBIT)
            return cluster

        comparison = processing(making, trials)
        self._free()
        return comparison

    def _timed(self, case: Case, plan: Plan, tables: dict[str, pa.Table], count: int) -> tuple[float, pa.Table]:
        """Return the mean of some runs' seconds, after one that counts for nothing, and the last one's result."""
        with self._cluster(plan, count) as cluster:
            self._give(cluster, tables)
            self._links.shape(case.rate_mbit * _MBIT)
            seconds = [cluster.run(case.fan_in).run_time_s for _ in range(TIMES + 1)][1:]
            self._free()
            return statistics.fmean(seconds), cluster.result()

    def _cluster(self, plan: Plan, count: int) -> Cluster:
        """Return a session with the first machines, by connections from the coordinator's link."""
        self._free()
        connecting = partial(namespaces.call, self._links.coordinator)
        return Cluster(self._workers.addresses[:count], self._workers.secret, plan, connecting=connecting)

    def _give(self, cluster: Cluster, tables: dict[str, pa.Table]) -> None:
        cluster.load(tables)
        self._shares.limited(is_limited=True)

    def _free(self) -> None:
        self._shares.limited(is_limited=False)
        self._links.shape(None)


def tables_of(rows: int, seed: int = 1) -> dict[str, pa.Table]:
    """Return rows, a tenth with a value below 100, in groups that all shards share."""
    generator = np.random.default_rng(seed)
    data = {
        "place": generator.integers(0, GROUPS, rows),
        "value": generator.integers(0, 1000, rows),
        "amount": generator.integers(0, 1 << 32, rows),
    }
    # A quarter of the rows have a match.
    places = {"place": np.arange(0, GROUPS, 4), "region": np.arange(0, GROUPS, 4) % 7}
    return {"data": pa.table(data), "places": pa.table(places)}


def _is_exact(sql: str, tables: dict[str, pa.Table], result: pa.Table) -> bool:
    """Return whether a result has the rows that one DuckDB over all the data has."""
    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table)
        wanted = connection.sql(sql).to_arrow_table()
        kinds = ("DOUBLE" if pa.types.is_floating(field.type) else "HUGEINT" for field in wanted.schema)
        columns = ", ".join(f"CAST({name} AS {kind})" for name, kind in zip(wanted.column_names, kinds, strict=True))
        connection.register("wanted", wanted)
        connection.register("result", result)
        sides = (f"SELECT {columns} FROM {name}" for name in ("wanted", "result"))
        side, other = sides
        differing = connection.sql(f"({side} EXCEPT ALL {other}) UNION ALL ({other} EXCEPT ALL {side})").fetchall()
        return not differing and wanted.num_rows == result.num_rows


def show(measured: Sequence[Measured], title: str) -> None:
    """Print a line for each case."""
    columns = ("operator", "engine", "rows", "n", "k", "Mbit/s", "one s", "all s", "ratio", "predicted", "error")
    table = Table(*columns, title=title)
    for measurement in measured:
        case, comparison = measurement.case, measurement.comparison
        cells = (case.name, case.engine, case.rows, case.count, case.fan_in, f"{case.rate_mbit:g}")
        figures = (comparison.one_measured_s, comparison.all_measured_s, comparison.measured_ratio, comparison.ratio)
        table.add_row(*map(str, cells), *(f"{figure:.3f}" for figure in figures), f"{comparison.error:.1%}")
    Console(file=sys.stderr, width=120).print(table)


def main() -> int:
    """Print the figures as JSON on stdout, the table on stderr."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    if os.geteuid() != 0:
        sys.stderr.write("needs root: network namespaces and control groups\n")
        return 1
    print(json.dumps(measure()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
