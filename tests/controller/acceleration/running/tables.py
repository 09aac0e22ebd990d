"""Tables for runs, results that workers compute in parts, and results of one DuckDB over all the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from controller.acceleration.running.clusters import shards_of
from controller.acceleration.running.engines import backend_of
from controller.acceleration.running.values import Plan

MEMORY = 256 << 20


def small_tables(rows: int = 2000) -> dict[str, pa.Table]:
    """Return rows with every kind of column, NULLs among the texts, and a table that lacks some of the places."""
    generator = np.random.default_rng(5)
    texts = [None if number == 3 else str(number) for number in generator.integers(0, 6, rows)]
    data = {
        "place": generator.integers(0, 50, rows),
        "value": generator.integers(-1000, 1000, rows),
        "part": generator.integers(0, 9, rows).astype(np.float64) / 4,
        "text": texts,
    }
    return {"data": pa.table(data), "places": pa.table({"place": np.arange(40), "region": np.arange(40) % 7})}


def numbers(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the tables without texts."""
    return {name: table.drop_columns([c for c in table.column_names if c == "text"]) for name, table in tables.items()}


def merged(plan: Plan, tables: Mapping[str, pa.Table], count: int) -> pa.Table:
    """Run a plan in parts, as workers do: merges of merges."""
    backends = []
    for shard in shards_of(tables["data"], count):
        backends.append(backend_of(plan, MEMORY, 1))
        for name, table in ({**tables, "data": shard}).items():
            backends[-1].load(name, table)
    root, partial = backends[0], [backend.partial() for backend in backends]
    return root.finish(root.merge([root.merge(partial[:2]), *partial[2:]]))


def of_one_duckdb(sql: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """Return the result of one DuckDB over all the data."""
    with duckdb.connect(":memory:") as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(sql).to_arrow_table()


def rows_of(table: pa.Table, *, is_ordered: bool) -> list[tuple[Any, ...]]:
    """Return rows in their order if it counts, else sorted; numbers normalised across types."""
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return rows if is_ordered else sorted(rows, key=repr)
