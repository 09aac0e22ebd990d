"""Statements in parts: what is merged is what one DuckDB over all the data has, or the statement is refused."""

from __future__ import annotations

import pytest

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.operators import plan_of_statement
from controller.acceleration.running.statements.splitting import split_statement
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
    # Bound to the same columns, whatever the text looks like.
    "SELECT round(exp(avg(ln(value + 9000))), 6) AS g, round(geomean(value + 9000), 6) FROM data",
    "SELECT value FROM data ORDER BY 1 OFFSET 57",
    "SELECT * EXCLUDE (text) FROM data ORDER BY 2, 1, part LIMIT 3",
    "SELECT count(COLUMNS(*)) FROM DATA",
    """SELECT d.s.place AS x, place, count(*) AS n FROM (SELECT {'place': part} AS s, place FROM data) d
    GROUP BY place, d.s.place ORDER BY ALL""",
    "SELECT text COLLATE NOCASE AS t, count(*) FROM data GROUP BY 1 ORDER BY 1",
    "SELECT max(CAST(text AS ENUM('1', '0', 'x', 'y'))), count(*) FROM data WHERE text IN ('0', '1')",
    "SELECT count(DISTINCT place), sum(DISTINCT place), count(*), avg(value) FROM data",
    "SELECT text, count(DISTINCT place), min(value) FROM data GROUP BY text ORDER BY text NULLS FIRST",
    # Rows of shards are gathered at the root, which does the rest.
    "SELECT data.place, region FROM data FULL JOIN places USING (place)",
    "SELECT data.place FROM places LEFT JOIN data USING (place)",
    "SELECT place FROM data UNION SELECT place FROM places",
    "WITH x AS (SELECT place, count(*) AS n FROM data GROUP BY place) SELECT a.n, b.place FROM x a JOIN x b USING (n)",
    """SELECT place FROM data WHERE place IN (SELECT region FROM places)
    AND value < (SELECT avg(region) * 9 FROM places)""",
    "SELECT value, (SELECT max(region) FROM places WHERE places.place = data.place) FROM data WHERE part = 1",
)
REFUSED = (
    ("SELECT median(value) FROM data", "aggregate median cannot be split across workers"),
    ("SELECT max(value, 3) FROM data", "max cannot be split"),
    ("SELECT first(value) FROM data", "aggregate first"),
    ("SELECT string_agg(text, ',' ORDER BY value) FROM data", "aggregate string_agg"),
    ("SELECT * FROM data WHERE value < (SELECT avg(value) FROM data)", "read 2 times"),
    ("SELECT count(DISTINCT value), count(DISTINCT place) FROM data", "DISTINCT"),
    ("SELECT count(DISTINCT value), arg_max(text, value) FROM data", "arg_max"),
    ("SELECT count(DISTINCT value) FILTER (WHERE place > 1) FROM data", "FILTER"),
    # Equal under the collation, and the first in an order that a join changes.
    ("SELECT max(text COLLATE NOCASE) FROM data JOIN places ON value < region", "arg_max, or a collation, over a join"),
    ("SELECT text COLLATE NOCASE, count(*) FROM data SEMI JOIN places ON value < region GROUP BY 1", "over a join"),
    ("SELECT arg_min(text, part) FROM data, places", "arg_min, or a collation, over a join"),
    ("SELECT row_number() OVER () FROM data", "WINDOW"),
    ("SELECT place, count(*) FROM data GROUP BY ROLLUP (place)", "grouping sets"),
    ("SELECT sum(value) FROM data TABLESAMPLE 50%", "SAMPLE"),
    ("SELECT DISTINCT ON (place) place, value FROM data", "DISTINCT ON"),
    ("SELECT region FROM places ASOF JOIN data ON region >= value", "ASOF JOIN"),
    ("SELECT a.place FROM data a, data b", "read 2 times"),
    ("SELECT place FROM data LIMIT 10%", "LIMIT"),
    ("SELECT random() FROM data", "function random"),
    ("SELECT count(*) FROM data WHERE current_date > DATE '2024-01-01'", "function current_date"),
    ("SELECT CAST(TIMESTAMP '2024-01-01' AS TIMESTAMPTZ) FROM data", "time zone"),
    ("SELECT list_transform([value], lambda x: x + 1) FROM data", "LAMBDA"),
    ("SELECT * FROM data, range(3)", "table function range"),
    ("SELECT * FROM data, read_csv('/etc/passwd')", "disabled"),
    ("SELECT 1", "reads no table"),
    ("SELECT nothing FROM data", "nothing"),
    ("selec", "syntax error"),
    ("SELECT 1; SELECT 2", "one SELECT is run"),
    ("PIVOT data ON place USING sum(value)", "one SELECT is run"),
    ("DROP TABLE data", "one SELECT is run"),
)


@pytest.mark.parametrize("sql", STATEMENTS)
def test_merged_parts_equal_one_duckdb(sql: str) -> None:
    tables = small_tables()
    found, wanted = merged(plan_of_statement(sql, tables, "data"), tables, 3), of_one_duckdb(sql, tables)
    assert found.schema.equals(wanted.schema)
    is_ordered = "ORDER BY" in sql
    assert rows_of(found, is_ordered=is_ordered) == rows_of(wanted, is_ordered=is_ordered)


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


def test_names_are_case_insensitive() -> None:
    tables = small_tables(10)
    assert split_statement("SELECT max(VALUE) FROM Data", tables, "DATA").sharded == "data"
    with pytest.raises(StatementError, match="already exists"):
        split_statement("SELECT 1 FROM data", tables | {"DATA": tables["data"]})


def test_only_statements_that_merge_all_rows_grow() -> None:
    tables = small_tables(10)
    assert split_statement("SELECT * FROM data", tables).grows
    assert not split_statement("SELECT * FROM data ORDER BY 1 LIMIT 3", tables).grows
    assert not split_statement("SELECT count(*) FROM data", tables).grows
