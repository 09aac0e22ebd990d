"""Steps of statements: conditions pushed down, names, sizes counted on a sample or estimated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from controller.acceleration.plans import reading_of_statement
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.statements.rendering import Renderer
from controller.acceleration.running.steps.planning import planned_steps
from controller.acceleration.running.steps.submitting import TableFile, TaskPlan, plan_task
from controller.cluster.operators import OperatorError

ROWS = 300_000


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a database with three tables."""
    with duckdb.connect(":memory:") as connection:
        connection.execute("CREATE TABLE a AS SELECT range AS k, range % 7 AS v FROM range(100)")
        connection.execute("CREATE TABLE b AS SELECT range AS k, range % 5 AS w FROM range(50)")
        connection.execute("CREATE TABLE c AS SELECT range % 5 AS w, range AS x FROM range(10)")
        yield connection


@pytest.mark.parametrize(
    ("sql", "kinds"),
    [
        ("SELECT * FROM a, b WHERE a.k = b.k AND a.v < 3 AND b.w > 1", ["filter", "filter", "join"]),
        ("SELECT * FROM a JOIN b USING (k) WHERE v = 1", ["filter", "join"]),
        ("SELECT * FROM a LEFT JOIN b USING (k) WHERE v = 1 AND w IS NULL", ["filter", "join", "filter"]),
        ("SELECT * FROM a, b, c WHERE a.k = b.k AND b.w = c.w", ["join", "join"]),
        # Without a condition between the first two, DuckDB orders the joins: one step.
        ("SELECT * FROM a, c, b WHERE a.k = b.k AND b.w = c.w", ["join"]),
        ("SELECT * FROM a, c WHERE (a.v = 1 AND c.x > a.k) OR (a.v = 2 AND c.x < a.k)", ["join"]),
        ("WITH t AS (SELECT k, v FROM a WHERE v < 3) SELECT * FROM t JOIN t u USING (k)", ["filter", "join"]),
        ("SELECT v, count(*) FROM a GROUP BY v HAVING count(*) > 3 ORDER BY v", ["aggregate", "filter", "sort"]),
        ("SELECT DISTINCT v FROM a ORDER BY v LIMIT 3", ["aggregate", "top-n"]),
        ("SELECT k + v FROM a WHERE k + v > 5 OR k = 1", ["filter", "project"]),
        ("SELECT * FROM a WHERE v IN (SELECT w FROM b)", ["join", "filter"]),
    ],
)
def test_steps_are_the_operators_worth_running(
    connection: duckdb.DuckDBPyConnection, sql: str, kinds: list[str]
) -> None:
    plan, steps = planned_steps(connection, sql)
    assert [step.kind for step in steps] == kinds
    pushed = connection.sql(Renderer().relation(plan).sql).fetchall()
    assert sorted(pushed) == sorted(connection.sql(sql).fetchall())


def test_names_of_steps_are_the_same_in_each_process(connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT w, sum(v) FROM a, b WHERE a.k = b.k GROUP BY w ORDER BY w"
    names = [[step.name for step in planned_steps(connection, sql)[1]] for _ in range(2)]
    assert names[0] == names[1] == ["join-1", "aggregate-1", "sort-1"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TableFile]:
    """Write a large and a small table."""
    folder = tmp_path_factory.mktemp("tables")
    rng = np.random.default_rng(1)
    lines = {"item": rng.integers(0, 500, ROWS), "price": rng.integers(0, 1000, ROWS), "name": ["x" * 40] * ROWS}
    pq.write_table(pa.table(lines), folder / "lines.parquet")
    pa.csv.write_csv(pa.table({"item": np.arange(500), "kind": np.arange(500) % 3}), folder / "items.csv")
    return {"lines": TableFile(folder / "lines.parquet"), "items": TableFile(folder / "items.csv")}


STATEMENT = """SELECT kind, sum(price) FROM lines JOIN items USING (item) WHERE price < 500
GROUP BY kind ORDER BY kind"""


def sizes_of(plan: TaskPlan, name: str) -> dict[str, int]:
    return dict(plan.graph.operator[name].shape)


def test_sizes_are_counted_on_a_sample(files: Mapping[str, TableFile]) -> None:
    plan = plan_task(STATEMENT, files, "q")
    assert (plan.sharded, plan.why) == ("lines", "")
    assert plan.basis.startswith("a sample of ")
    assert sizes_of(plan, "filter-1")["rows"] == ROWS
    assert sizes_of(plan, "filter-1")["kept_rows"] == pytest.approx(ROWS / 2, rel=0.02)
    assert sizes_of(plan, "join-1")["right_rows"] == 500
    assert sizes_of(plan, "join-1")["out_rows"] == pytest.approx(ROWS / 2, rel=0.02)
    assert sizes_of(plan, "aggregate-1")["groups"] == 3
    assert sizes_of(plan, "final-sort-1")["rows"] == 3
    flows = {(flow.src, flow.dst) for flow in plan.graph.flows}
    assert {("filter-1", "join-1"), ("join-1", "aggregate-1"), ("aggregate-1", "final-sort-1")} <= flows


def test_distinct_groups_beyond_a_sample_are_estimated(files: Mapping[str, TableFile]) -> None:
    plan = plan_task("SELECT price * 1000 + item AS g, count(*) FROM lines GROUP BY g", files, "q")
    with duckdb.connect(":memory:") as connection:
        connection.execute("CREATE VIEW lines AS FROM query_table($1)".replace("$1", f"'{files['lines'].file}'"))
        (groups,) = connection.execute("SELECT count(DISTINCT price * 1000 + item) FROM lines").fetchone() or (0,)
    assert sizes_of(plan, "aggregate-1")["groups"] == pytest.approx(groups, rel=0.5)


def test_tables_elsewhere_are_planned_by_their_stated_sizes() -> None:
    columns = {"item": "BIGINT", "price": "BIGINT"}
    plan = plan_task(
        "SELECT item, sum(price) FROM t GROUP BY item", {"t": TableFile(Path("/no/t"), 7000, columns)}, "q"
    )
    assert plan.basis == "DuckDB's estimates"
    assert sizes_of(plan, "aggregate-1")["rows"] == 7000


def test_what_is_not_split_is_planned_as_a_whole(files: Mapping[str, TableFile]) -> None:
    plan = plan_task("SELECT item, rank() OVER (ORDER BY price) FROM lines", files, "q")
    assert plan.sharded == ""
    assert "WINDOW" in plan.why
    assert plan.graph.operators


@pytest.mark.parametrize(
    ("sql", "table", "problem"),
    [
        ("SELECT nothing FROM t", TableFile(Path("/x"), 1, {"a": "BIGINT"}), 'column "nothing" not found'),
        ("SELEC 1", TableFile(Path("/x"), 1, {"a": "BIGINT"}), "Parser Error"),
        ("SELECT a FROM t", TableFile(Path("/no/t")), "table t: /no/t is not on this machine: state its"),
        ("SELECT a FROM t", TableFile(Path("/no/t"), 1, {"a": "NOTHING"}), "table t: Catalog Error"),
    ],
)
def test_a_wrong_statement_or_table_is_one_line(sql: str, table: TableFile, problem: str) -> None:
    with pytest.raises((RunError, OperatorError), match=problem) as raised:
        plan_task(sql, {"t": table}, "q")
    assert "\n" not in str(raised.value)


def test_only_the_last_result_of_a_machine_goes_up_the_tree(files: Mapping[str, TableFile]) -> None:
    reading = reading_of_statement(plan_task(STATEMENT, files, "q").graph)
    assert reading.stays == {"filter-1", "join-1", "final-sort-1"} | {
        name for name in reading.at_root if name.startswith("final-")
    }
    assert "aggregate-1" not in reading.stays
