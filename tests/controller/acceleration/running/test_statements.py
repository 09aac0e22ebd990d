"""Statements in parts: merged results equal one DuckDB over all the data, or the statement is refused."""

from __future__ import annotations

import pytest

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.statements import split_statement
from tests.controller.acceleration.running.tables import merged, of_one_duckdb, rows_of, small_tables

STATEMENTS = (
    "SELECT * FROM data WHERE value < 100",
    """SELECT place + 1 AS x, sum(value * 2) AS s, avg(value), count(*) FILTER (WHERE value > 10) FROM data
    WHERE value < 900 AND place IN (1, 2, 3, 4) GROUP BY x HAVING sum(value) > -3000 ORDER BY s DESC, 1 LIMIT 3 OFFSET 1
    """,
    "SELECT sum(value), count(*), count(text), min(text), max(part), avg(part), avg(value) FROM data WHERE value < 10",
    """SELECT region, sum(value) AS q FROM data JOIN places ON data.place = places.place GROUP BY places.region
    ORDER BY q""",
    "SELECT data.*, places.region FROM data LEFT JOIN places USING (place) WHERE value < 50",
    "SELECT place FROM places RIGHT JOIN data USING (place)",
    "SELECT value, text FROM data ORDER BY value DESC, text NULLS LAST, part LIMIT 7",
    "SELECT value, place FROM data ORDER BY value * part, value, place",
    "SELECT DISTINCT text FROM data",
    "SELECT sum(value) / count(*) + 1 AS z FROM data, places WHERE data.place = places.place AND region = 3",
    "SELECT CASE WHEN place < 10 THEN 'x' ELSE 'y' END AS k, count(*) FROM data GROUP BY 1 ORDER BY 1",
    "SELECT place % 2 AS place, count(*) FROM data GROUP BY place",
    "SELECT sum(value), min(value), count(*) FROM data WHERE value < -5000",
    "SELECT text, 100 * sum(CASE WHEN text = '1' THEN value ELSE 0 END) / sum(value) AS r FROM data GROUP BY text",
    "SELECT T.place, count(*) FROM data AS t GROUP BY place ORDER BY t.place DESC",
)
REFUSED = (
    ("SELECT median(value) FROM data", "median is not split"),
    ("SELECT * FROM data WHERE value < (SELECT avg(value) FROM data)", "subqueries"),
    ("SELECT count(DISTINCT value) FROM data", "DISTINCT"),
    ("SELECT data.place FROM data FULL JOIN places USING (place)", "FULL JOIN"),
    ("SELECT data.place FROM places LEFT JOIN data USING (place)", "LEFT JOIN"),
    ("SELECT row_number() OVER () FROM data", "windows"),
    ("SELECT a.place FROM data a, data b", "stands 2 times"),
    ("SELECT place FROM data UNION SELECT place FROM places", "UNION"),
    ("WITH x AS (SELECT 1) SELECT * FROM x, data", "WITH"),
    ("SELECT * FROM read_csv('/etc/passwd')", "no table"),
    ("SELECT nothing FROM data", "nothing"),
    ("selec", "syntax error"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("DROP TABLE data", "Only SELECT"),
)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_merged_parts_equal_one_duckdb(sql: str) -> None:
    tables = small_tables()
    actual, wanted = merged(plan_of_statement(sql, tables, "data"), tables, 3), of_one_duckdb(sql, tables)
    assert actual.schema.equals(wanted.schema)
    is_ordered = "ORDER BY" in sql
    assert rows_of(actual, is_ordered=is_ordered) == rows_of(wanted, is_ordered=is_ordered)


def test_shards_without_rows_change_nothing() -> None:
    tables = small_tables(2)
    sql = "SELECT place, sum(value) AS s, avg(part) FROM data GROUP BY place ORDER BY place"
    assert merged(plan_of_statement(sql, tables, "data"), tables, 5).equals(of_one_duckdb(sql, tables))


@pytest.mark.parametrize(("sql", "reason"), REFUSED)
def test_unsplittable_statement_is_refused_in_one_line(sql: str, reason: str) -> None:
    with pytest.raises(StatementError, match=r".+") as caught:
        split_statement(sql, small_tables(10), "data")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_statements_that_merge_all_rows_grow() -> None:
    tables = small_tables(10)
    assert split_statement("SELECT * FROM data", tables).grows
    assert not split_statement("SELECT * FROM data ORDER BY 1 LIMIT 3", tables).grows
    assert not split_statement("SELECT count(*) FROM data", tables).grows
