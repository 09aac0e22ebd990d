"""Operators of SQL: DuckDB's plans, with pushed filters as filters, row widths, and declared tables without data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from controller.cluster.operators import Flow, OperatorError, OperatorGraph, dumps, loads, work_of
from controller.cluster.operators.sql import SqlPlanner, SqlTable, graph_of_sql

JOIN = """
    select o.customer, sum(l.price) as total from orders o join lines l on o.id = l.order_id
    where o.day > 100 and l.quantity < 20 group by o.customer order by total desc
"""


@pytest.fixture
def shop() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(
            "create table orders as select i as id, i % 100 as customer, i % 365 as day, 'x' as note"
            " from range(10000) t(i)"
        )
        connection.execute(
            "create table lines as select i % 10000 as order_id, i % 50 as quantity, i * 0.5::double as price"
            " from range(40000) t(i)"
        )
        yield connection


def kinds(graph: OperatorGraph) -> list[str]:
    return [operator.kind for operator in graph.operators]


def test_join_with_filters_equals_the_hand_written_graph(shop: duckdb.DuckDBPyConnection) -> None:
    graph = graph_of_sql(JOIN, shop)
    assert kinds(graph) == ["filter", "filter", "join", "aggregate", "sort"]
    assert graph.category == "sql"
    by_rows = {dict(operator.shape)["rows"]: operator for operator in graph.operators[:2]}
    assert by_rows.keys() == {10_000, 40_000}
    # Columns read are id, customer and day; order_id, quantity and price: 8 bytes each.
    assert {operator.input_bytes for operator in by_rows.values()} == {10_000 * 24, 40_000 * 24}
    assert [(flow.src, flow.dst) for flow in graph.flows] == [
        ("filter-1", "join-1"),
        ("filter-2", "join-1"),
        ("join-1", "aggregate-1"),
        ("aggregate-1", "sort-1"),
    ]
    kept = [dict(operator.shape)["kept_rows"] for operator in graph.operators[:2]]
    assert [flow.nbytes for flow in graph.flows[:2]] == [16 * rows for rows in kept]
    assert all(operator.library == "duckdb" and work_of(operator) is not None for operator in graph.operators)
    assert loads(dumps(graph)) == graph


def test_only_the_plan_is_made(shop: duckdb.DuckDBPyConnection) -> None:
    graph_of_sql("insert into orders select * from orders", shop)
    row = shop.execute("select count(*) from orders").fetchone()
    assert row == (10_000,)


def test_plain_query_is_a_scan_and_a_formula_a_projection(shop: duckdb.DuckDBPyConnection) -> None:
    assert kinds(graph_of_sql("select * from orders", shop)) == ["table-scan"]
    assert kinds(graph_of_sql("select price * 2 + 1 from lines", shop)) == ["project"]
    assert kinds(graph_of_sql("select day from orders order by day limit 3", shop)) == ["top-n"]
    assert kinds(graph_of_sql("select distinct note from orders", shop)) == ["aggregate"]


def test_tables_that_are_not_here_are_planned_by_rows_and_bytes() -> None:
    tables = {"orders": SqlTable(10**9, 10**11), "lines": SqlTable(4 * 10**9, 10**12)}
    graph = graph_of_sql(JOIN, None, tables)
    assert kinds(graph) == ["filter", "filter", "join", "aggregate", "sort"]
    by_rows = {dict(operator.shape)["rows"]: dict(operator.shape)["row_bytes"] for operator in graph.operators[:2]}
    assert by_rows == {10**9: 100, 4 * 10**9: 250}
    assert sum(operator.input_bytes or 0 for operator in graph.operators) == 10**11 + 10**12


def test_equally_many_rows_do_not_mix_tables_up() -> None:
    tables = {"orders": SqlTable(1000, 10_000), "lines": SqlTable(1000, 50_000)}
    graph = graph_of_sql(JOIN, None, tables)
    assert {dict(operator.shape)["row_bytes"] for operator in graph.operators[:2]} == {10, 50}


def test_declared_columns_say_which_bytes_are_read() -> None:
    columns = {"price": "DOUBLE", "note": "VARCHAR", "rest": "VARCHAR"}
    graph = graph_of_sql("select sum(price) from lines where note = 'a'", None, {"lines": SqlTable(1000, 0, columns)})
    assert kinds(graph) == ["filter", "aggregate"]
    assert graph.operators[0].input_bytes == 1000 * (8 + 16)
    assert graph.flows == (Flow("filter-1", "aggregate-1", dict(graph.operators[0].shape)["kept_rows"] * 8),)


def test_declared_columns_have_the_bytes_of_their_types() -> None:
    tables = {
        "orders": SqlTable(1000, 0, {"id": "BIGINT", "day": "DATE", "note": "VARCHAR"}),
        "lines": SqlTable(9000, 900_000, {"order_id": "BIGINT", "price": "DECIMAL(15,2)", "count": "INTEGER"}),
    }
    for order in ("note", "id, note"):
        graph = graph_of_sql(f"select {order} from orders join lines on id = order_id order by day", None, tables)
        sizes = dict(next(operator for operator in graph.operators if operator.kind == "join").shape)
        assert {sizes["left_row_bytes"], sizes["right_row_bytes"]} == {8, 8 + 4 + 16}
    named = graph_of_sql(
        "select lines.price, t.rest from t join lines on t.a = lines.order_id", None, tables | {"t": SqlTable(9, 900)}
    )
    sizes = dict(next(operator for operator in named.operators if operator.kind == "join").shape)
    assert {sizes["left_row_bytes"], sizes["right_row_bytes"]} == {16, 8 + 8}  # not the 100 bytes of a row as stored
    assert sum(operator.input_bytes or 0 for operator in named.operators) == 900 + 9000 * 16


def test_repeated_subquery_of_declared_tables_is_computed_once(shop: duckdb.DuckDBPyConnection) -> None:
    part = "(select order_id from lines join orders on order_id = id where day > 100)"
    sql = f"select count(*) from {part} a join {part} b on a.order_id = b.order_id"
    columns = {"orders": {"id": "BIGINT", "day": "BIGINT"}, "lines": {"order_id": "BIGINT", "price": "DOUBLE"}}
    declared = {name: SqlTable(10_000, 0, types) for name, types in columns.items()}
    graphs = [sorted(kinds(graph_of_sql(sql, *of))) for of in ((shop,), (None, declared))]
    assert graphs[0] == graphs[1] == ["aggregate", "filter", "join", "join"]


def test_column_types_follow_the_values_they_are_compared_with() -> None:
    graph = graph_of_sql(
        "select count(*) from lines where day > date '2020-01-01' and note like 'a%'",
        None,
        {"lines": SqlTable(1000, 8000)},
    )
    assert kinds(graph) == ["filter", "aggregate"]


@pytest.mark.parametrize("tables", [None, {"p": SqlTable(9, 0, {"k": "BIGINT"})}, {"p": SqlTable(9, 72)}])
@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("set threads = 1", "SET"),
        ("use memory", "USE"),
        ("/* größte */ prepare p1 as select k from p", "PREPARE"),
        ("explain select k from p", "EXPLAIN"),
        ("explain analyze select k from p", "EXPLAIN"),
        ("create table t as select k from p", "CREATE"),
        ("copy (select k from p) to 'p.csv'", "COPY"),
        ("pragma version", "PRAGMA"),
        ("call pragma_version()", "CALL"),
        ("checkpoint", "CHECKPOINT"),
        ("begin", "BEGIN"),
        ("attach 'p.db'", "ATTACH"),
        ("show tables", "SHOW"),
        ("desc p", "DESC"),
        ("-- größte\ndescribe p", "DESCRIBE"),
        ("select * from (describe p)", "DESCRIBE"),
    ],
)
def test_statements_that_are_no_queries_are_refused(
    sql: str, word: str, tables: dict[str, SqlTable] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OperatorError) as caught:
        graph_of_sql(sql, None, tables)
    assert str(caught.value) == f"SQL: {word} is no query; one SELECT is expected"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "sql",
    [
        "from p",
        ";select p.k from p;;",
        "(select p.k from p) -- show p",
        "table p",
        "summarize p",
        "with q as (select p.k from p) select * from q",
        "pivot p on k in (1, 2) using sum(k)",
        "select '(describe p)' as note, p.k from p order by p.k desc",
    ],
)
def test_queries_of_every_form_are_planned(sql: str) -> None:
    graph = graph_of_sql(sql, None, {"p": SqlTable(1000, 0, {"k": "BIGINT"})})
    assert any(dict(operator.shape)["rows"] == 1000 for operator in graph.operators)


def test_pivot_without_values_needs_data(shop: duckdb.DuckDBPyConnection) -> None:
    sql = "pivot orders on customer using count(*)"
    assert "aggregate" in kinds(graph_of_sql(sql, shop))
    with pytest.raises(OperatorError, match="over declared tables; PIVOT needs its values"):
        graph_of_sql(sql, None, {"orders": SqlTable(9, 0, {"customer": "BIGINT"})})


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("select", "SQL: Parser Error"),
        ("", "0 SQL statements"),
        ("select 1; drop table orders", "2 SQL statements; a graph needs exactly one"),
        ("select x from missing", "SQL: Catalog Error: Table with name missing does not exist!"),
    ],
)
def test_refusal_of_duckdb_is_one_line(sql: str, problem: str, shop: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(OperatorError, match=problem) as caught:
        graph_of_sql(sql, shop)
    assert "\n" not in str(caught.value)
    assert shop.execute("select count(*) from orders").fetchone() == (10_000,)


def test_files_that_are_no_database_are_reported(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="no such database"):
        graph_of_sql("select 1", tmp_path / "missing")
    (tmp_path / "text").write_text("no database" * 1000)
    with pytest.raises(OperatorError, match="text: "):
        graph_of_sql("select 1", tmp_path / "text")
    with pytest.raises(OperatorError, match="table t: 0 rows"):
        graph_of_sql("select a from t", None, {"t": SqlTable(0, 1)})


def test_conditions_on_two_declared_columns_are_compatible() -> None:
    columns = {"brand": "VARCHAR", "container": "VARCHAR", "price": "DOUBLE"}
    graph = graph_of_sql(
        "select sum(price) from part where brand = 'a' and container = 'b'",
        None,
        {"part": SqlTable(200_000, 0, columns)},
    )
    assert kinds(graph) == ["filter", "aggregate"]
    assert dict(graph.operators[0].shape)["rows"] == 200_000
    assert dict(graph.operators[0].shape)["kept_rows"] > 1000


def test_star_reads_all_columns_except_inside_exists() -> None:
    tables = {
        "t": SqlTable(1000, 0, {"a": "BIGINT", "b": "BIGINT", "c": "VARCHAR"}),
        "u": SqlTable(500, 0, {"d": "BIGINT"}),
    }
    assert graph_of_sql("select * from t where a = 1", None, tables).operators[0].input_bytes == 1000 * 32
    exists = "select d from u where exists (select * from t where a = d)"
    assert (
        sum(operator.input_bytes or 0 for operator in graph_of_sql(exists, None, tables).operators)
        == 1000 * 8 + 500 * 8
    )


def test_subquery_read_twice_is_computed_once(shop: duckdb.DuckDBPyConnection) -> None:
    graph = graph_of_sql(
        "with sums as materialized (select customer, count(*) as n from orders group by customer)"
        " select customer from sums where n = (select max(n) from sums)",
        shop,
    )
    (first,) = (operator for operator in graph.operators if len(graph.out_of[operator.name]) == 2)
    assert first.kind == "aggregate"
    assert "join" in {graph.operator[flow.dst].kind for flow in graph.out_of[first.name]}
    assert not [operator for operator in graph.operators if operator.kind.startswith("sql-")]


def test_a_planner_plans_many_statements_as_one_by_one() -> None:
    tables = {"orders": SqlTable(1000, 10_000), "lines": SqlTable(4000, 0, {"order_id": "BIGINT", "price": "DOUBLE"})}
    statements = [
        "select sum(price) from lines",
        "select o.customer from orders o join lines l on o.id = l.order_id where l.price > 2",
        "select count(*) from orders where day > date '2020-01-01'",
        "select customer from orders order by customer",
    ]
    with SqlPlanner(None, tables) as planner:
        assert [planner.graph(statement) for statement in statements] == [
            graph_of_sql(statement, None, tables) for statement in statements
        ]
        with pytest.raises(OperatorError, match="2 SQL statements"):
            planner.graph("select 1; select 2")
        with pytest.raises(OperatorError, match=r"SQL: .*yntax"):
            planner.graph("selec price from lines")
        with pytest.raises(OperatorError, match="SQL: only a SELECT can be planned over declared tables"):
            planner.graph("insert into lines values (1, 2)")
        assert planner.plan(statements[0]).duckdb_s > 0
