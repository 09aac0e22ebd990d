"""TPC-H over three workers returns DuckDB's rows, or names why a statement is not split."""

from __future__ import annotations

from tests.benchmarks.sql import tpch_statements

REFUSED = {
    "q11": "SQL: table partsupp is in parts, and is read 2 times by the statement: once is possible",
    "q21": "SQL: this correlated subquery cannot be split across workers",
}


def test_tpch_returns_the_rows_of_duckdb() -> None:
    outcomes = tpch_statements(0.01)
    assert len(outcomes) == 22
    refused = {name: outcome for name, outcome in outcomes.items() if " sharded, " not in outcome}
    assert refused == REFUSED
