"""The 22 statements of TPC-H are planned from declared tables only and over generated data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from controller.cluster.operators import KINDS
from controller.cluster.operators.sql import SqlPlanner, planner
from controller.cluster.operators.sql.references import references_of_words
from tests.benchmarks.accelerating.tpch import data as tpch
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS, tables

SCALE = 0.1


@pytest.fixture(scope="module")
def declared() -> Iterator[SqlPlanner]:
    with SqlPlanner(None, tables(SCALE)) as planner:
        yield planner


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlPlanner]:
    with (
        tpch.generated(tmp_path_factory.mktemp("tpch"), SCALE) as connection,
        SqlPlanner(connection) as planner,
    ):
        yield planner


def check(planner: SqlPlanner, name: str) -> None:
    graph = planner.graph(STATEMENTS[name], name=name)
    assert graph.operators
    assert {operator.kind for operator in graph.operators} <= KINDS.keys()
    last = [operator for operator in graph.operators if not graph.out_of[operator.name]]
    assert len(last) == 1
    assert last[0].output_bytes is not None
    assert all(flow.nbytes is not None for flow in graph.flows)


def test_there_are_22_statements() -> None:
    assert list(STATEMENTS) == [f"q{number:02}" for number in range(1, 23)]


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_planned_of_declared_tables_alone(name: str, declared: SqlPlanner) -> None:
    check(declared, name)


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_planned_over_generated_data(name: str, generated: SqlPlanner) -> None:
    check(generated, name)


def test_declared_tables_have_the_rows_of_generated_ones(tmp_path: Path) -> None:
    tpch.generate(tmp_path, 0.01)
    with duckdb.connect() as connection:
        for name, table in tables(0.01).items():
            path = f"'{tmp_path / name}.parquet'"
            row = connection.execute(f"select count(*) from {path}").fetchone()
            columns = connection.execute(f"describe select * from {path}").fetchall()
            assert row is not None
            assert abs(row[0] - table.rows) <= 0.005 * table.rows, name
            assert {column: kind for column, kind, *_ in columns} == table.columns, name


def test_word_scan_agrees_with_the_parser(declared: SqlPlanner, monkeypatch: pytest.MonkeyPatch) -> None:
    by_words = [declared.graph(sql) for sql in STATEMENTS.values()]
    assert sum(references_of_words(sql) is not None for sql in STATEMENTS.values()) == 20
    monkeypatch.setattr(planner, "references_of_words", lambda _: None)
    assert [declared.graph(sql) for sql in STATEMENTS.values()] == by_words


@pytest.mark.parametrize(
    "sql",
    [
        *("", "select * from t", "select a, * from t", "select t.* from t", "select distinct * from t", "from t"),
        *("select 1; select 2", "table t", "select a from t natural join u", "select columns('a') from t"),
        *("select a from (from t)", "select a from (select*from t)", "select (a), * from t"),
    ],
)
def test_parser_is_used_if_the_word_scan_is_unclear(sql: str) -> None:
    assert references_of_words(sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "select a * b from t;",
        "select count(*), (a)*2 from t",
        "select a from t where exists (select * from u)",
        'select "a" * 3 from t',
    ],
)
def test_a_star_that_multiplies_asks_for_no_column(sql: str) -> None:
    references = references_of_words(sql)
    assert references is not None
    assert not references.has_star
    assert ("", "a") in references.columns or "b" not in sql
