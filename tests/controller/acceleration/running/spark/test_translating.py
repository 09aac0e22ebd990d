"""Spark SQL of bound plans, and statements that are refused since Spark's rows might be others than DuckDB's."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from controller.acceleration.running.errors import StatementError
from controller.acceleration.running.spark.nodes import check_keys
from controller.acceleration.running.spark.translating import SparkStatement, spark_statement
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS, tables
from tests.controller.acceleration.running.tables import small_tables

TABLES = {
    "x": pa.schema([
        ("i", pa.int32()), ("b", pa.int64()), ("f", pa.float64()), ("e", pa.float32()), ("s", pa.string()),
        ("d", pa.decimal128(12, 2)), ("day", pa.date32()), ("at", pa.timestamp("us")), ("ok", pa.bool_()),
        ("u", pa.uint8()), ("l", pa.list_(pa.int32())), ("zoned", pa.timestamp("us", "UTC")),
    ]),
    "y": pa.schema([("i", pa.int32()), ("s", pa.string()), ("Some Name", pa.int32())]),
}  # fmt: skip
RENDERED = (
    ("SELECT i FROM x", "SELECT t1.c0 AS c0 FROM input0 AS t1"),
    ('SELECT "some name" FROM Y', "SELECT t1.c2 AS c0 FROM input0 AS t1"),
    ("SELECT i + 1 FROM x", "CAST((t1.c0 + CAST(1 AS INT)) AS INT)"),
    ("SELECT i / 2 FROM x", "(CASE WHEN CAST('2.0' AS DOUBLE) = 0 THEN CAST(t1.c0 AS DOUBLE) * power("),
    ("SELECT i // 2 FROM x", "CAST((t1.c0 div CAST(2 AS INT)) AS INT)"),
    ("SELECT CAST(f AS INTEGER) FROM x", "CAST(rint(t1.c2) AS INT)"),
    ("SELECT CAST(d AS INTEGER) FROM x", "CAST(round(t1.c5, 0) AS INT)"),
    ("SELECT TRY_CAST(f AS INTEGER) FROM x", "try_cast(rint(t1.c2) AS INT)"),
    ("SELECT i FROM x WHERE s LIKE 'a\\%'", "(t1.c4 LIKE 'a\\\\%' ESCAPE '\x01')"),
    ("SELECT i FROM x WHERE s = 'it''s \\n'", "(t1.c4 = 'it\\'s \\\\n')"),
    ("SELECT i FROM x ORDER BY i LIMIT 3", "ORDER BY t1.c0 ASC NULLS LAST LIMIT 3"),
    ("SELECT i FROM x ORDER BY i DESC NULLS FIRST", "ORDER BY t1.c0 DESC NULLS FIRST"),
    ("SELECT sum(b) FROM x", "CAST(sum(CAST(t1.c1 AS DECIMAL(19, 0))) AS DECIMAL(38, 0))"),
    ("SELECT avg(d) FROM x", "(CAST(sum(t1.c5) AS DOUBLE) / nullif(count(t1.c5), 0))"),
    ("SELECT day + INTERVAL '1 month 2 days' FROM x", "+ INTERVAL '1' MONTH) + INTERVAL '2' DAY)"),
    ("SELECT i FROM x WHERE day <= DATE '1998-12-01' - INTERVAL 90 DAY", "TIMESTAMP_NTZ'1998-09-02 00:00:00'"),
    ("SELECT lower(s) FROM x", "raise_error('lower() of text other than ASCII cannot be run on Spark')"),
    ("SELECT isnan(f) FROM x", "(CASE WHEN t1.c2 IS NOT NULL THEN isnan(t1.c2) END)"),
    ("SELECT i FROM x WHERE i IN (SELECT i FROM y)", "LEFT SEMI JOIN input1 AS t2 ON (t1.c0 = t2.c0)"),
    ("SELECT i FROM x WHERE NOT EXISTS (SELECT 1 FROM y WHERE y.i = x.i)", "LEFT ANTI JOIN"),
    ("SELECT i FROM x WHERE i NOT IN (SELECT i FROM y)", "THEN NULL ELSE false END)"),
    ("SELECT sum(i) FILTER (WHERE ok) OVER (ORDER BY b) FROM x", "sum(CASE WHEN t1.c8 THEN t1.c0 END) OVER (ORDER BY"),
    ("SELECT a.i FROM x a JOIN x b ON a.i = b.i", "FROM input0 AS t1 CROSS JOIN input0 AS t2 WHERE (t1.c0 = t2.c0)"),
    ("SELECT i FROM x EXCEPT ALL SELECT i FROM y", ") EXCEPT ALL ("),
    ("SELECT CASE WHEN ok THEN 1 ELSE 1 // 0 END FROM x", "(CAST(1 AS INT) div CAST(0 AS INT))"),
)
REFUSED = (
    ("SELECT l FROM x", "type LIST"),
    ("SELECT zoned FROM x", "type TIMESTAMP WITH TIME ZONE"),
    ("SELECT u + u FROM x", "UTINYINT + UTINYINT"),
    ("SELECT string_agg(s) FROM x", "aggregate string_agg"),
    ("SELECT mode(i) FROM x", "aggregate mode"),
    ("SELECT first(i) FROM x", "aggregate first"),
    ("SELECT arg_max(i, b) FROM x", "aggregate arg_max"),
    ("SELECT median(d) FROM x", "aggregate median"),
    ("SELECT ln(f) FROM x", "function ln"),
    ("SELECT random() FROM x", "function random"),
    ("SELECT current_date FROM x", "cannot be run on Spark"),
    ("SELECT CAST(s AS INTEGER) FROM x", "a cast from VARCHAR to INTEGER"),
    ("SELECT CAST(f AS VARCHAR) FROM x", "a cast from DOUBLE to VARCHAR"),
    ("SELECT CAST(f AS DECIMAL(9, 2)) FROM x", "a cast from DOUBLE to DECIMAL"),
    ("SELECT CAST(i AS UTINYINT) FROM x", "a cast from INTEGER to UTINYINT"),
    ("SELECT round(e, 1) FROM x", "function round(FLOAT)"),
    ("SELECT round(f, i) FROM x", "a value that is not constant"),
    ("SELECT substring(s, 0, 2) FROM x", "substring()"),
    ("SELECT s LIKE s FROM x", "a value that is not constant"),
    ("SELECT s LIKE 'a$b' ESCAPE '$' FROM x", "LIKE with $"),
    ("SELECT row_number() OVER () FROM x", "an order, without one"),
    ("SELECT sum(i) OVER (ROWS 2 PRECEDING) FROM x", "ROWS without an order"),
    ("SELECT sum(i) OVER (ORDER BY b RANGE 2 PRECEDING) FROM x", "WINDOW with sql_range_start"),
    ("SELECT sum(i) OVER (ORDER BY b GROUPS 2 PRECEDING) FROM x", "a window from"),
    ("SELECT first_value(i IGNORE NULLS) OVER (ORDER BY b) FROM x", "IGNORE NULLS"),
    ("SELECT DISTINCT ON (i) i, b FROM x", "DISTINCT ON without an order"),
    ("SELECT i FROM x WHERE NOT (i <> ANY (SELECT i FROM y))", "ANY or ALL"),
    ("SELECT x.i FROM x ASOF JOIN y ON x.i >= y.i", "ASOF"),
    ("SELECT i FROM x TABLESAMPLE 10%", "SAMPLE"),
    ("SELECT unnest(l) FROM x", "cannot be run on Spark"),
    ("SELECT * FROM range(3)", "table function range"),
    ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r", "cannot be run"),
    ("SELECT i FROM x LIMIT 3000000000", "LIMIT or OFFSET"),
    ("SELECT i FROM x; SELECT i FROM y", "one SELECT is run"),
    ("DROP TABLE x", "one SELECT is run"),
    ("SELECT nothing FROM x", "nothing"),
    ("SELECT s COLLATE NOCASE AS s FROM x ORDER BY 1", "cannot be run on Spark"),
)


@pytest.mark.parametrize(("sql", "part"), RENDERED)
def test_rendered_spark_sql(sql: str, part: str) -> None:
    assert part in spark_statement(sql, TABLES).sql


@pytest.mark.parametrize(("sql", "reason"), REFUSED)
def test_statement_is_refused_in_one_line(sql: str, reason: str) -> None:
    with pytest.raises(StatementError) as caught:
        spark_statement(sql, TABLES)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_statement_has_the_types_and_names_of_duckdb() -> None:
    statement = spark_statement('SELECT sum(i) AS "Total", i AS a, i AS a FROM x GROUP BY i', TABLES)
    assert statement.columns == (("Total", "HUGEINT"), ("a", "INTEGER"), ("a", "INTEGER"))
    assert statement.tables == ("x",)


def test_tables_count_in_the_order_of_their_first_use() -> None:
    statement = spark_statement("SELECT y.i FROM y JOIN x ON x.i = y.i JOIN y z ON z.i = y.i", TABLES)
    assert statement.tables == ("y", "x")
    assert statement.sql.count("input0 AS") == 2


def test_a_statement_may_read_tables_with_rows() -> None:
    tables = small_tables()
    assert isinstance(spark_statement("SELECT median(value) FROM data", tables), SparkStatement)


@pytest.mark.parametrize("name", sorted(STATEMENTS))
def test_every_tpch_statement_is_translated(name: str) -> None:
    with duckdb.connect(":memory:") as connection:
        schemas = {}
        for table, declared in tables(0.01).items():
            columns = ", ".join(f"{column} {kind}" for column, kind in declared.columns.items())
            connection.execute(f"CREATE TABLE {table} ({columns})")
            schemas[table] = connection.table(table).to_arrow_table().schema
    assert spark_statement(STATEMENTS[name], schemas).tables


def test_an_unknown_part_of_a_plan_is_refused() -> None:
    node = {"type": "LOGICAL_FILTER", "expressions": [], "children": []}
    check_keys(node)
    check_keys(node | {"skipped": False})
    with pytest.raises(StatementError, match="FILTER with skipped"):
        check_keys(node | {"skipped": True})
    with pytest.raises(StatementError, match="PIVOT"):
        check_keys(node | {"type": "LOGICAL_PIVOT"})
