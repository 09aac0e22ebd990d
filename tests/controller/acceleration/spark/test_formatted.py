"""Texts of EXPLAIN FORMATTED: trees, sections, subqueries, final plans; sizes of tables; texts that are none."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.acceleration.errors import AccelerationError
from controller.acceleration.plans.works import Stated, plan_of
from controller.acceleration.spark.formatted import PlanText, is_plan, read_plans
from controller.acceleration.spark.kinds import Role
from tests.controller.acceleration.spark.spark_logs import LOGS, OLD, ROLLED, outcome

PLANS = LOGS / "plans.txt"
ROWS = {"lineitem": 6_000_000, "orders": 1_500_000, "customer": 150_000}
FINAL = """== Physical Plan ==
AdaptiveSparkPlan (9)
+- == Final Plan ==
   ResultQueryStage (5), Statistics(sizeInBytes=8.0 EiB)
   +- * Project (4)
      +- * Filter (3)
         +- * ColumnarToRow (2)
            +- Scan parquet spark_catalog.default.t (1)
               +- Subquery (8)
+- == Initial Plan ==
   Project (7)
   +- Filter (6)
      +- Scan parquet spark_catalog.default.t (1)


(1) Scan parquet spark_catalog.default.t
Output [2]: [a#1L, b#2]
ReadSchema: struct<a:bigint,b:string>

(2) ColumnarToRow [codegen id : 1]
Input [2]: [a#1L, b#2]

(3) Filter [codegen id : 1]
Condition : (a#1L > 1)

(4) Project [codegen id : 1]
Output [1]: [a#1L]

===== Subqueries =====

Subquery:1 Hosting operator id = 1 Hosting Expression = a#1L IN (subquery#3)
Sort (11)
+- Scan parquet spark_catalog.default.u (10)


(10) Scan parquet spark_catalog.default.u
ReadSchema: struct<c:int>

(11) Sort
Arguments: [c#4 ASC]
"""


def names(plan: PlanText) -> list[str]:
    return sorted(operator.name for operator in plan.ran.operators)


def final(tmp_path: Path, rows: dict[str, int]) -> PlanText:
    (tmp_path / "final.txt").write_text(FINAL)
    (plan,) = read_plans(tmp_path / "final.txt", rows)
    return plan


def test_sparks_own_texts_are_read() -> None:
    plans = read_plans(PLANS, ROWS)
    assert [plan.ran.graph.name for plan in plans] == ["plans 1", "plans 2", "plans 3"]
    joins = [sum(one.kind == "join" for one in plan.ran.operators) for plan in plans]
    assert joins == [2, 0, 4]
    for plan in plans:
        assert plan.lacking == ()
        assert {one.role for one in plan.ran.operators} <= {Role.COMPUTES, Role.SCANS, Role.MOVES}


def test_stated_tables_have_their_rows_and_types() -> None:
    plan = read_plans(PLANS, ROWS)[1]
    shapes = {one.name: dict(one.shape) for one in plan.ran.graph.operators}
    assert shapes["table-scan-1"] == {"rows": 6_000_000, "row_bytes": 40}
    assert shapes["filter-1"] == {"rows": 6_000_000, "row_bytes": 40, "kept_rows": 6_000_000}
    works = {work.name: work for work in plan_of(plan.ran.graph, 1, Stated({"filter": 0.02})).works}
    assert works["filter-1"].input_gb == pytest.approx(0.24)


def test_tables_without_a_size_leave_their_readers_unknown() -> None:
    plan = read_plans(PLANS, {"orders": 1_500_000, "customer": 150_000})[0]
    assert plan.lacking == ("lineitem",)
    assert plan.unknown["top-n-1"] == "rows unknown: state the size of lineitem"
    assert "join-1" not in plan.unknown
    assert "join-2" in plan.unknown


def test_the_final_plan_and_its_subqueries_are_taken(tmp_path: Path) -> None:
    plan = final(tmp_path, {"t": 100, "u": 7})
    assert names(plan) == ["conversion-1", "filter-1", "project-1", "sort-1", "table-scan-1", "table-scan-2"]
    rows = {one.name: (one.read_rows, one.made_rows) for one in plan.ran.operators}
    assert rows["sort-1"] == (7, 7)
    assert rows["filter-1"] == (100, 100)
    assert final(tmp_path, {}).lacking == ("t", "u")


def test_a_final_plan_has_the_operators_of_the_final_one_only(tmp_path: Path) -> None:
    assert sum(one.kind == "filter" for one in final(tmp_path, {}).ran.operators) == 1


def test_plans_and_logs_are_told_apart(tmp_path: Path) -> None:
    assert is_plan(PLANS)
    assert not is_plan(OLD)
    assert not is_plan(ROLLED)
    (tmp_path / "other.txt").write_text("no plan")
    assert not is_plan(tmp_path / "other.txt")
    with pytest.raises(AccelerationError, match="nothing: No such file"):
        is_plan(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["", "== Physical Plan ==\n", "== Physical Plan ==\nnot a node\n", "== Phys"])
def test_a_text_without_a_plan_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text(text)
    with pytest.raises(AccelerationError, match=r"plan\.txt: no plan of EXPLAIN FORMATTED") as refused:
        read_plans(tmp_path / "plan.txt", {})
    assert "\n" not in str(refused.value)


@given(st.integers(0, len(FINAL)), st.integers(0, len(FINAL)))
def test_a_cut_text_gives_a_plan_or_one_line(cut: int, begin: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cut.txt"
        path.write_text(FINAL[:cut] + FINAL[begin:])
        assert len(outcome(lambda: [plan.ran.graph.name for plan in read_plans(path, {"t": 5})]).splitlines()) == 1
