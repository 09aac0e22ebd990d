"""Statements whose steps run on a device return what one DuckDB returns."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import pyarrow as pa
import pytest

from controller.acceleration.running.engines.duckdb_tables import DuckDbBackend
from controller.acceleration.running.statements.splitting import LOSSLESS, split_statement
from controller.acceleration.running.steps.naming import FINAL
from controller.acceleration.running.values import Split, StepRun
from controller.acceleration.values import CPU
from tests.controller.acceleration.running.statements.generated import (
    Comparison,
    Statement,
    Statements,
    tables_of,
)
from tests.examples import examples

KINDS = ("filter", "join", "aggregate", "project", "sort", "top-n")
torch = pytest.importorskip("torch")
BATCHES, STATEMENTS, PER_TABLE = 4, examples(25), 25


def without_nulls(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Return tables whose numbers a device takes."""
    with duckdb.connect(":memory:") as connection:
        connection.execute(LOSSLESS)
        for name, table in tables.items():
            connection.register(name, table)
        return {
            "lines": connection.sql(
                "SELECT * REPLACE (coalesce(a, 7) AS a, coalesce(price, 0.5) AS price) FROM lines"
            ).to_arrow_table(),
            "items": connection.sql("SELECT * REPLACE (coalesce(a, 5) AS a) FROM items").to_arrow_table(),
        }


class Stepped(Comparison):
    """Has random steps of each statement run on a device."""

    def __init__(self, tables: dict[str, pa.Table], shards: int, rng: random.Random) -> None:
        super().__init__(tables, shards)
        self._rng = rng
        self.ran: Counter[str] = Counter()

    def prepare(self, backend: DuckDbBackend, split: Split) -> None:
        """Plan the statement's steps, each on the CPU or a GPU."""
        backend.split = split
        names = [f"{kind}-{number}" for kind in KINDS for number in range(1, 4)]
        names += [FINAL + name for name in names]
        devices = {name: self._rng.choice((CPU, "gpu", "gpu")) for name in names}
        backend._devices = {name: device for name, device in devices.items() if device != CPU}

    def is_split(self, statement: Statement) -> bool:
        """Compare a statement, and count where its steps ran."""
        for backend in self._backends:
            backend._runs.clear()
        is_split = super().is_split(statement)
        self.ran.update(run.device for backend in self._backends for run in backend.step_runs())
        return is_split


@pytest.mark.parametrize("seed", range(BATCHES))
@pytest.mark.parametrize("nulls", [False, True])
def test_steps_on_a_device_equal_one_duckdb(seed: int, *, nulls: bool) -> None:
    rng = random.Random(seed)
    generator, ran = Statements(rng), Counter[str]()
    for _ in range(STATEMENTS // PER_TABLE):
        tables = tables_of(rng)
        comparison = Stepped(tables if nulls else without_nulls(tables), rng.choice((1, 2, 3)), rng)
        for _ in range(PER_TABLE):
            comparison.is_split(generator.statement())
        ran += comparison.ran
    assert ran["torch-cpu"] + ran["torch-cuda"] > 0


def test_joins_that_duckdb_orders_stay_there() -> None:
    lines, items = pa.table({"a": [1, 2, 3]}), pa.table({"b": [3, 2, 1]})
    sql = "SELECT a, b FROM lines, items WHERE (a = 1 AND b > 1) OR (a = 2 AND b < 2)"
    split = split_statement(sql, {"lines": lines, "items": items}, "lines")
    backend = DuckDbBackend(split, 1 << 28, 1, {"join-1": "gpu"})
    for name, table in (("lines", lines), ("items", items)):
        backend.load(name, table)
    assert sorted(backend.finish(backend.merge([backend.partial()])).to_pylist(), key=str) == [
        {"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 1}
    ]  # fmt: skip
    assert backend.step_runs() == (StepRun("join-1", "cpu", None, "DuckDB orders these joins"),)
