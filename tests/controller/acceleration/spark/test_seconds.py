"""Seconds of operators: timers where there are some, the rest by rows, never more than a stage's tasks took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.acceleration.spark.kinds import Role
from controller.acceleration.spark.operators import ran
from controller.acceleration.spark.values import Counter, Node, Query, Stage, Unit
from tests.controller.acceleration.spark.spark_logs import EVERY, LARGE, LZ4, ODD, application

STAGE = Stage(0, 0, "", 1, 0, 1.0, 0.0, 1.0, 0.0, 1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1000, {})


def query_of(nodes: tuple[Node, ...], stages: tuple[Stage, ...]) -> Query:
    return Query(0, "made up", 0, 1000, False, nodes, stages, {})


def rows(number: int) -> Counter:
    return Counter("number of output rows", number, Unit.COUNT)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_operators_and_the_rest_are_a_stages_seconds(path: Path) -> None:
    for query in application(path).queries:
        done = ran(query, 1)
        for stage, rest_s in zip(query.stages, done.rest_s, strict=True):
            parts = [part.seconds for _, part in done.in_stage(stage)]
            assert min([0.0, *parts]) == 0
            assert sum(parts) + rest_s == pytest.approx(stage.run_s)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_scans_and_sorts_have_the_seconds_of_their_timers(path: Path) -> None:
    timed = [
        operator
        for query in application(path).queries
        for operator in ran(query, 1).operators
        if operator.spark_name in {"Scan parquet", "Sort"} and operator.parts
    ]
    assert timed
    for operator in timed:
        assert operator.seconds == pytest.approx(operator.timed_s, abs=0.002)


def test_stage_belongs_to_operators_whose_counters_it_adds_to() -> None:
    (query,) = (query for query in application(LZ4).queries if query.stages)
    done = ran(query, 1)
    first, last = query.stages
    assert [one.spark_name for one, _ in done.in_stage(first)] == [
        *("Scan parquet", "ColumnarToRow", "Filter", "Project", "HashAggregate", "Exchange"),
    ]
    # The shuffle has the seconds for which its reader waited.
    assert [one.name for one, _ in done.in_stage(last)] == ["exchange-1", "aggregate-2"]


def test_python_workers_have_their_own_timer() -> None:
    operators = [one for query in application(ODD).queries for one in ran(query, 1).operators]
    workers = [one for one in operators if one.spark_name == "BatchEvalPython" and one.parts]
    assert workers
    assert all(one.role is Role.UNKNOWN and one.timed_s == pytest.approx(one.seconds) for one in workers)


def test_a_timer_with_inputs_bounds_the_operators_below() -> None:
    nodes = (
        Node("Project", (1,)),
        Node("HashAggregate", (2,), (rows(1), Counter("time in aggregation build", 2, Unit.MILLISECONDS))),
        Node("Filter", (3,), (rows(3),)),
        Node("Scan parquet", (), (rows(4), Counter("scan time", 5, Unit.MILLISECONDS))),
    )
    stage = replace(STAGE, run_s=10.0, cpu_s=10.0, counters={1: 50, 2: 6000, 3: 150, 4: 300, 5: 2000})
    done = ran(query_of(nodes, (stage,)), 1)
    seconds = {one.spark_name: one.seconds for one in done.operators}
    # Of the aggregate's 6 s the scan has 2; the other 4 are divided by 450 + 1 and 200 + 1 rows in and out.
    assert seconds["Scan parquet"] == 2.0
    assert seconds["Filter"] == pytest.approx(4.0 * 451 / 652)
    assert seconds["HashAggregate"] == pytest.approx(4.0 * 201 / 652)
    assert seconds["Project"] == pytest.approx(4.0)


def test_seconds_without_the_cpu_belong_to_no_operator() -> None:
    nodes = (Node("Project", (1,)), Node("Scan parquet", (), (rows(1), Counter("scan time", 2, Unit.MILLISECONDS))))
    stage = replace(STAGE, run_s=10.0, cpu_s=2.5, counters={1: 100, 2: 2000})
    done = ran(query_of(nodes, (stage,)), 1)
    assert {one.spark_name: one.seconds for one in done.operators} == {"Scan parquet": 2.0, "Project": 2.0}
    assert done.rest_s == (6.0,)


def test_shuffles_have_seconds_in_both_of_their_stages() -> None:
    nodes = (
        Node("HashAggregate", (1,), (rows(1),)),
        Node(
            "Exchange",
            (2,),
            (
                Counter("shuffle write time", 2, Unit.NANOSECONDS),
                Counter("fetch wait time", 3, Unit.MILLISECONDS),
                Counter("records read", 4, Unit.COUNT),
                Counter("shuffle records written", 5, Unit.COUNT),
            ),
        ),
        Node("Range", (), (rows(6),)),
    )
    first = replace(STAGE, cpu_s=1.0, counters={2: 250_000_000, 5: 7, 6: 9})
    second = replace(STAGE, number=1, cpu_s=1.0, counters={1: 3, 3: 125, 4: 7})
    done = ran(query_of(nodes, (first, second)), 1)
    by_name = {one.spark_name: one for one in done.operators}
    assert [(part.stage, part.seconds) for part in by_name["Exchange"].parts] == [(0, 0.25), (1, 0.125)]
    assert [(part.stage, part.seconds) for part in by_name["Range"].parts] == [(0, 0.75)]
    assert [(part.stage, part.seconds) for part in by_name["HashAggregate"].parts] == [(1, 0.875)]


def test_reused_subqueries_count_once() -> None:
    subquery = (Node("Subquery", (4,), ()), Node("HashAggregate", (5,), (rows(1),)), Node("Range", (), (rows(2),)))
    nodes = (
        Node("Filter", (1, 2, 3), (rows(7),)),
        Node("Range", (), (rows(8),)),
        Node("ReusedSubquery", (6,)),
        subquery[0],
        subquery[1],
        subquery[2],
        Node("Subquery", (7,)),
        subquery[1].__class__("HashAggregate", (5,), (rows(1),)),
    )
    stage = replace(STAGE, cpu_s=1.0, counters={1: 1, 2: 100})
    done = ran(query_of(nodes, (stage,)), 1)
    assert sorted(one.spark_name for one in done.operators) == ["Filter", "HashAggregate", "Range", "Range"]
    assert sum(one.seconds for one in done.operators) == pytest.approx(1.0)
    (filtered,) = (one for one in done.operators if one.kind == "filter")
    assert filtered.read_rows == 0


def test_the_driver_collects_and_builds_broadcasts() -> None:
    operators = [one for query in application(LARGE).queries for one in ran(query, 1).operators]
    broadcasts = [one for one in operators if one.kind == "broadcast"]
    assert broadcasts
    assert all(one.driver_s > 0 for one in broadcasts if one.made_rows)
    assert all(one.driver_s == 0 for one in operators if one.kind != "broadcast")


NAMES = ("Filter", "Project", "Sort", "HashAggregate", "SortMergeJoin", "Window", "Exchange", "WholeStageCodegen (1)")
TIMERS = ("sort time", "scan time", "time in aggregation build", "shuffle write time", "fetch wait time")


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_plan_and_timers_are_divided_within_the_stage(data: st.DataObject) -> None:
    """Whatever the counters say, nothing is negative and nothing is counted twice."""
    count = data.draw(st.integers(1, 8))
    parents = [data.draw(st.integers(0, max(at - 1, 0))) for at in range(count)]
    nodes = tuple(
        Node(
            data.draw(st.sampled_from(NAMES)),
            tuple(child for child in range(1, count) if parents[child] == at and child != at),
            (rows(10 * at), Counter(data.draw(st.sampled_from(TIMERS)), 10 * at + 1, Unit.MILLISECONDS)),
        )
        for at in range(count)
    )
    numbers = [number for at in range(count) for number in (10 * at, 10 * at + 1)]
    stages = tuple(
        replace(
            STAGE,
            number=number,
            run_s=data.draw(st.floats(0, 100)),
            cpu_s=data.draw(st.floats(0, 100)),
            counters=data.draw(st.dictionaries(st.sampled_from(numbers), st.integers(0, 10**6))),
        )
        for number in range(2)
    )
    done = ran(query_of(nodes, stages), 3)
    for stage, rest_s in zip(stages, done.rest_s, strict=True):
        parts = [part.seconds for _, part in done.in_stage(stage)]
        assert all(seconds >= -1e-9 for seconds in parts)
        assert sum(parts) <= stage.run_s * (1 + 1e-9) + 1e-9
        assert sum(parts) + rest_s == pytest.approx(stage.run_s, abs=1e-6)
