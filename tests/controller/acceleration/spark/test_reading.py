"""Applications from events: sums that Spark states as well, other versions, logs that are cut, corrupt or odd."""

from __future__ import annotations

import copy
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controller.acceleration.spark import reading
from controller.acceleration.spark.values import Application
from tests.controller.acceleration.spark.spark_logs import (
    EVERY,
    LARGE,
    LZ4,
    ODD,
    OLD,
    ROLLED,
    application,
    events,
    plain,
    written,
)
from tests.controller.acceleration.spark.trimming import SECRET


def stages(found: Application) -> dict[tuple[int, int], Any]:
    every = [*found.others, *(stage for query in found.queries for stage in query.stages)]
    return {(stage.number, stage.attempt): stage for stage in every}


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_sums_over_tasks_are_sparks_own_totals(path: Path) -> None:
    """Spark states the total of each accumulator of a plan when a stage completes; we add up its tasks' updates."""
    found, totals = application(path), Counter[int]()
    ours: Counter[int] = Counter()
    for stage in stages(found).values():
        ours.update(stage.counters)
    for event in events(path):
        if event["Event"] == "SparkListenerStageCompleted":
            for one in event["Stage Info"]["Accumulables"]:
                totals[one["ID"]] = int(one["Value"])
    assert len(totals) > 10
    assert {number: ours[number] for number in totals} == dict(totals)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_stages_add_up_their_tasks_metrics(path: Path) -> None:
    sums: dict[tuple[int, int], Counter[str]] = {}
    for event in events(path):
        if event["Event"] == "SparkListenerTaskEnd":
            metrics = event["Task Metrics"]
            sums.setdefault((event["Stage ID"], event["Stage Attempt ID"]), Counter()).update(
                run=metrics["Executor Run Time"],
                cpu=metrics["Executor CPU Time"],
                input=metrics["Input Metrics"]["Bytes Read"],
                written=metrics["Shuffle Write Metrics"]["Shuffle Bytes Written"],
                tasks=1,
            )
    found = stages(application(path))
    assert found.keys() == sums.keys()
    for key, stage in found.items():
        assert stage.run_s == pytest.approx(sums[key]["run"] / 1e3)
        assert stage.cpu_s == pytest.approx(sums[key]["cpu"] / 1e9)
        assert (stage.input_bytes, stage.written_bytes) == (sums[key]["input"], sums[key]["written"])
        assert stage.tasks == sums[key]["tasks"]


def test_versions_and_machines_are_read() -> None:
    old, rolled, large = application(OLD), application(ROLLED), application(LARGE)
    assert [one.version for one in (old, rolled, large)] == ["3.5.9", "4.3.0", "4.3.0"]
    assert [(one.machines, one.cores) for one in (old, rolled, large)] == [(1, 2)] * 3
    assert {query.description for query in rolled.queries if query.stages} == {f"q{n:02}" for n in range(1, 23)}
    assert old.faults == rolled.faults == large.faults == ()


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_ends_in_the_middle_gives_what_it_has(seed: int, tmp_path: Path) -> None:
    data = plain(OLD)
    cut = random.Random(seed).randrange(200, len(data) - 200)
    (tmp_path / "cut").write_bytes(data[:cut])
    found = application(tmp_path / "cut")
    ended = data[:cut].count(b'{"Event":"SparkListenerTaskEnd"')
    tasks = sum(stage.tasks for stage in stages(found).values())
    assert "ends before the application does" in found.faults
    assert tasks in {ended, ended - 1}
    assert found.end_ms is None


def test_corrupt_lines_are_counted_and_left_out(tmp_path: Path) -> None:
    bad = ["garbage", '{"Event":"SparkListenerTaskEnd","Stage ID":"x"}', "[" * 100_000, "\ufffd{", '{"Event":7}', "{}"]
    lines: list[dict[str, Any] | str] = [*events(LZ4)]
    for index, line in enumerate(bad):
        lines.insert(10 + 2 * index, line)
    found, whole = application(written(tmp_path / "log", lines)), application(LZ4)
    assert found.faults == (f"6 of {len(lines)} lines are not events (first: line 11)",)
    assert (found.queries, found.others) == (whole.queries, whole.others)


@pytest.mark.parametrize(
    ("version", "fault"),
    [("7.0.1", "written by Spark 7.0.1, read like 3 and 4"), ("2.4.8", "written by Spark 2.4.8, read like 3 and 4")],
)
def test_untested_versions_are_read_and_named(version: str, fault: str, tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [{"Event": "SparkListenerLogStart", "Spark Version": version}]
    found = application(written(tmp_path / "log", [*lines, *events(LZ4)[1:]]))
    assert found.faults == (fault,)
    assert found.queries == application(LZ4).queries


def test_unknown_events_and_fields_are_no_fault(tmp_path: Path) -> None:
    lines = [copy.deepcopy(event) | {"New Field": [1, {"a": None}]} for event in events(LZ4)]
    lines.insert(5, {"Event": "SparkListenerOfTheFuture", "Stage ID": "a text"})
    found = application(written(tmp_path / "log", lines))
    assert (found.faults, found.queries) == ((), application(LZ4).queries)


def test_a_log_without_its_beginning_says_what_it_lacks(tmp_path: Path) -> None:
    kept = [one for one in events(LZ4) if "Job" in one["Event"] or "Task" in one["Event"] or "SQL" in one["Event"]]
    found = application(written(tmp_path / "log", kept))
    assert found.faults == (
        "ends before the application does",
        "lacks its beginning",
        "does not state Spark's version",
        "does not state its executors: one core a machine is assumed",
    )
    assert (found.machines, found.cores, found.name) == (1, 0, "unnamed")


def test_failed_tasks_take_time_but_count_no_rows(tmp_path: Path) -> None:
    found = application(ODD)
    (failed,) = (query for query in found.queries if query.is_failed)
    assert failed.description == "fail"
    (stage,) = failed.stages
    assert stage.failed_tasks == stage.tasks > 0
    assert stage.failed_s == stage.run_s > 0
    assert stage.counters == {}


def test_retried_stages_are_kept_apart(tmp_path: Path) -> None:
    lines = []
    for event in events(LZ4):
        lines.append(event)
        if event["Event"] == "SparkListenerTaskEnd":
            lines.append(copy.deepcopy(event) | {"Stage Attempt ID": 1})
    found = stages(application(written(tmp_path / "log", lines)))
    assert {attempt for _, attempt in found} == {0, 1}
    assert all(found[number, 0].run_s == found[number, 1].run_s for number, _ in found)


def test_executors_at_the_same_time_are_the_machines(tmp_path: Path) -> None:
    def added(number: str, host: str) -> dict[str, Any]:
        info = {"Host": host, "Total Cores": 4}
        return {"Event": "SparkListenerExecutorAdded", "Executor ID": number, "Executor Info": info}

    removed = {"Event": "SparkListenerExecutorRemoved", "Executor ID": "1"}
    own = [event for event in events(LZ4) if event["Event"] != "SparkListenerExecutorAdded"]
    lines = [own[0], added("1", "a"), added("2", "a"), added("3", "b"), removed, added("4", "b"), *own[1:]]
    found = application(written(tmp_path / "log", lines))
    assert (found.machines, found.cores) == (2, 12)


def test_plans_beyond_the_limit_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_NODES", 60)
    found = application(OLD)
    assert any(fault.startswith("too large to keep") and fault.endswith("more plans") for fault in found.faults)
    assert sum(len(query.nodes) for query in found.queries) <= 60
    assert sum(query.run_s for query in found.queries) == sum(query.run_s for query in application(OLD).queries)


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_credentials_of_a_log_are_not_kept(path: Path) -> None:
    assert SECRET.encode() in plain(path)
    assert SECRET not in repr(application(path))


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_committed_logs_name_no_machine(path: Path) -> None:
    data = plain(path)
    assert b"/tmp" not in data
    assert {one["Executor Info"]["Host"] for one in events(path) if "Executor Info" in one} == {"host-1"}
