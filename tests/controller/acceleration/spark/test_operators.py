"""Operators of Spark's plans: names, kinds, rows, bytes and flows between them."""

from __future__ import annotations

import pytest

from controller.acceleration.spark.details import detail_of, split, width_of, widths_of
from controller.acceleration.spark.kinds import COMPUTED, Role, role_of, shown_name
from controller.acceleration.spark.operators import Ran, SparkOperator, ran
from controller.cluster.operators import KINDS
from tests.controller.acceleration.spark.spark_logs import LZ4, ODD, OLD, ROLLED, application


def query(path_description: str, number: int = 0) -> Ran:
    found = [one for one in application(ROLLED).queries if one.description == path_description and one.stages]
    return ran(found[number], 1)


def named(done: Ran) -> dict[str, SparkOperator]:
    return {operator.name: operator for operator in done.operators}


def test_a_statement_has_the_rows_that_it_read_and_kept() -> None:
    (q06,) = (query for query in application(LZ4).queries if query.stages)
    operators = named(ran(q06, 1))
    scan, kept = operators["table-scan-1"], operators["filter-1"]
    assert (scan.made_rows, kept.read_rows, kept.made_rows) == (60175, 60175, 1191)
    # Three decimals of 15 digits and a date, of eight bytes each, and eight of null bits.
    assert scan.made_bytes == 60175 * 40
    assert scan.counted_bytes == 1927111
    assert (operators["aggregate-1"].read_rows, operators["aggregate-1"].made_rows) == (1191, 1)


def test_rows_agree_between_versions_of_spark() -> None:
    (old,) = (one for one in application(OLD).queries if one.description == "q03" and one.stages)
    before, now = named(ran(old, 1)), named(query("q03"))
    assert before.keys() == now.keys()
    assert [(one.read_rows, one.made_rows, one.read_bytes) for one in before.values()] == [
        (one.read_rows, one.made_rows, one.read_bytes) for one in now.values()
    ]


def test_bytes_of_shuffled_rows_are_sparks_own() -> None:
    operators = named(query("q03"))
    shuffle = operators["exchange-1"]
    assert shuffle.is_width_measured
    assert shuffle.made_bytes == 8832
    assert operators["aggregate-1"].made_bytes == operators["aggregate-2"].read_bytes == 8832
    assert not operators["filter-1"].is_width_measured


@pytest.mark.parametrize("number", range(1, 23))
def test_graphs_of_the_22_statements_are_whole(number: int) -> None:
    done = query(f"q{number:02}")
    assert {one.kind for one in done.operators if one.role is Role.COMPUTES} <= set(COMPUTED.values()) <= KINDS.keys()
    assert not [one for one in done.operators if one.role is Role.UNKNOWN]
    assert set(done.graph.order) == {one.name for one in done.operators}
    ends = [one.name for one in done.graph.operators if not done.graph.out_of[one.name]]
    assert ends
    assert all(flow.nbytes is not None for flow in done.graph.flows)


def test_machines_share_rows_and_bytes() -> None:
    (q06,) = (query for query in application(LZ4).queries if query.stages)
    whole, quarter = ran(q06, 1).graph.operator["filter-1"], ran(q06, 4).graph.operator["filter-1"]
    assert dict(whole.shape)["rows"] == 60175
    assert dict(quarter.shape)["rows"] == 15044


def test_unknown_nodes_keep_their_name_and_no_path() -> None:
    roles = {name: role_of(name) for name in ("Window", "Execute InsertIntoHadoopFsRelationCommand file:/x", "Foo [1]")}
    assert roles["Window"] == (Role.UNKNOWN, "spark-window")
    assert all(role is Role.UNKNOWN for role, _ in roles.values())
    assert shown_name("Execute InsertIntoHadoopFsRelationCommand file:/secret") == (
        "Execute InsertIntoHadoopFsRelationCommand"
    )
    assert shown_name("OverwriteByExpression noop-table") == "OverwriteByExpression"
    assert shown_name("Scan parquet spark_catalog.default.t") == "Scan parquet"
    found = [one.spark_name for query in application(ODD).queries for one in ran(query, 1).operators]
    assert {"Window", "BatchEvalPython", "OverwriteByExpression"} <= set(found)


@pytest.mark.parametrize(
    ("name", "text", "columns", "fields"),
    [
        ("Project", "Project [a#1L, (b#2 + 1) AS c#3]", ("a", "c"), 2),
        ("Project", "Project [a#1L, ... 7 more fields]", ("a",), 8),
        ("HashAggregate", "HashAggregate(keys=[k#1, l#2], functions=[sum(v#3), count(1)])", ("k", "l", "", ""), 4),
        ("TakeOrderedAndProject", "TakeOrderedAndProject(limit=9, orderBy=[a#1 ASC], output=[a#1,b#2])", ("a", "b"), 2),
        ("ReusedExchange", "ReusedExchange [a#1, b#2L], BroadcastExchange x, [plan_id=7]", ("a", "b"), 2),
        ("Filter", "Filter (a#1 = [1, 2])", (), 0),
        ("Project", "Project [", (), 0),
    ],
)
def test_columns_are_read_from_a_nodes_text(name: str, text: str, columns: tuple[str, ...], fields: int) -> None:
    detail = detail_of(name, text, {})
    assert (detail.columns, detail.fields) == (columns, fields)


def test_joins_say_which_side_is_built_and_kept() -> None:
    detail = detail_of("BroadcastHashJoin", "BroadcastHashJoin [a#1], [b#2], LeftSemi, BuildLeft, false", {})
    assert (detail.keeps_left, detail.builds_left) == (True, True)
    assert detail_of("Exchange", "Exchange hashpartitioning(a#1, 4), [plan_id=81]", {}).plan_id == 81


def test_schemas_give_the_bytes_of_fields() -> None:
    schema = "struct<a:bigint,b:string,c:decimal(38,2),d:struct<e:int,f:array<int>>,g:decimal(15,2)>"
    assert widths_of(schema) == {"a": 8, "b": 24, "c": 24, "d": 24, "g": 8}
    assert widths_of("not a schema") == {}
    assert width_of("map<string,int>") == 56
    assert split("a, f(b, c), [d,e]") == ["a", "f(b, c)", "[d,e]"]
