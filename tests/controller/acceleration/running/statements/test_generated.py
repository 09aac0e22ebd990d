"""Random statements over shards return what one DuckDB returns over all rows, or are refused."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.statements import rendering, splitting
from controller.acceleration.running.statements.bound import Node
from tests.controller.acceleration.running.statements.generated import Comparison, Statement, compared, tables_of
from tests.examples import examples

BATCHES, STATEMENTS = 8, examples(60)


@pytest.mark.parametrize("seed", range(BATCHES))
def test_split_statements_equal_one_duckdb(seed: int) -> None:
    counts = compared(seed, STATEMENTS)
    assert counts[True] > STATEMENTS / 2, "most statements are split, or the comparison would be of nothing"


def _without_offset(limit: int | None, _offset: int) -> str:
    return "" if limit is None else f" LIMIT {limit}"


def _unordered(_order: str, limit: int | None, offset: int) -> str:
    return "" if limit is None else f" LIMIT {limit + offset}"


def _on_any_side(parent: Node, _child: Node) -> bool:
    return "JOIN" in parent["type"] or parent["type"] == "LOGICAL_PROJECTION"


def _merging(name: str, merge: str) -> dict[str, str]:
    return splitting._MERGED_BY | {name: merge}


MUTANTS: tuple[tuple[ModuleType, str, object, str], ...] = (
    (splitting, "_distributes", _on_any_side, "SELECT lo, id FROM items LEFT JOIN lines ON items.a = lines.a"),
    (rendering, "limit_text", _without_offset, "SELECT id FROM lines ORDER BY 1 OFFSET 2"),
    (splitting, "_top", _unordered, "SELECT id FROM lines ORDER BY id DESC LIMIT 2"),
    (splitting, "_MERGED_BY", _merging("avg", "avg({})"), "SELECT avg(id) FROM lines WHERE a > 0"),
    (splitting, "_MERGED_BY", _merging("count_star", "count({})"), "SELECT count(*) FROM lines"),
    (
        splitting,
        "_MERGED_BY",
        _merging("count", "sum({})"),
        "SELECT count(id), count(DISTINCT a) FROM lines WHERE id < 0",
    ),
    (splitting, "_by", lambda _number: "", "SELECT DISTINCT a FROM lines"),
    (rendering, "_deterministic", lambda: frozenset({"random"}), "SELECT id, random() FROM lines"),
)
"""Faults of a splitter, each with a statement whose rows it changes."""


@pytest.fixture(scope="module")
def comparisons() -> list[Comparison]:
    """Return tables of several seeds, in three shards each."""
    return [Comparison(tables_of(random.Random(seed)), 3) for seed in range(6)]


def _all_same(comparisons: list[Comparison], sql: str) -> bool:
    statement = Statement(sql, is_ordered="ORDER BY" in sql)
    return all(comparison.is_split(statement) for comparison in comparisons)


@pytest.mark.parametrize(("module", "name", "fault", "sql"), MUTANTS)
def test_comparison_catches_a_fault(
    comparisons: list[Comparison],
    module: ModuleType,
    name: str,
    fault: object,
    sql: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert _all_same(comparisons, sql) or "random" in sql
    monkeypatch.setattr(module, name, fault)
    with pytest.raises((AssertionError, RunError)):
        _all_same(comparisons, sql)
