"""Gains of applications: decisions of the model on measured seconds, and why they are not greater."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.acceleration.spark.kinds import Role
from controller.acceleration.spark.qualifying import Settings, qualify
from controller.acceleration.spark.text import COLUMNS, SUMMARY, document_of, notes_of, rows_of, summary_of, unknown_of
from controller.acceleration.values import Accelerator
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind
from tests.controller.acceleration.spark.spark_logs import EVERY, GPU, LARGE, LZ4, ODD, application, qualified


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_the_model_repeats_the_measured_seconds(path: Path) -> None:
    """On the CPU an operator takes what it took: its task seconds over the cores."""
    found = qualified(path)
    for query in found.queries:
        if query.explained is None:
            continue
        seconds = {one.name: one.seconds for one in query.ran.operators}
        for one in query.explained.operators:
            work = one.decision.work
            if work.basis is Basis.NONE or work.input_gb + work.other_gb == 0:
                continue
            expected = seconds[work.name] / found.application.cores
            assert one.decision.times["cpu"].total_s == pytest.approx(expected, abs=1e-9), work.name


@pytest.mark.parametrize("path", EVERY, ids=lambda path: path.name)
def test_nothing_gains_more_than_its_operators_take(path: Path) -> None:
    found = qualified(path)
    assert found.wall_s is not None
    assert 0 <= found.saved_s < found.wall_s
    for query in found.queries:
        assert query.saved_machine_s <= query.machine_s + 1e-9
        assert query.saved_s <= query.busy_s + 1e-9


def test_ratio_is_that_of_one_core_over_those_of_a_machine() -> None:
    """M is over one core: a machine of two cores halves it, less what the bus takes."""
    found = qualified(LARGE)
    ratios = [
        one.decision.ratio
        for query in found.queries
        for one in (query.explained.operators if query.explained else ())
        if one.device == "gpu" and one.decision.ratio is not None
    ]
    assert ratios
    assert max(ratios) <= GPU.parallelism / 2


def test_unknown_operators_scans_and_shuffles_stay_on_the_cpu() -> None:
    for query in qualified(ODD).queries:
        devices = {} if query.explained is None else {one.decision.work.name: one for one in query.explained.operators}
        for one in query.ran.operators:
            if one.role is not Role.COMPUTES:
                assert devices[one.name].device == "cpu"
            if one.role is Role.UNKNOWN:
                assert f"{one.spark_name}: the model has no such operator" in devices[one.name].decision.reasons


def test_a_device_that_is_stated_to_scan_scans() -> None:
    scanning = replace(GPU, runs=frozenset({"table-scan"}))
    found = qualified(LARGE, scanning)
    kinds = {
        one.decision.work.kind
        for query in found.queries
        for one in (query.explained.operators if query.explained else ())
        if one.device == "gpu"
    }
    assert kinds == {"table-scan"}


def test_without_devices_or_tasks_the_reason_is_said() -> None:
    assert qualify(application(LZ4), Settings(())).reasons == ("no machine has an accelerator",)
    empty = replace(application(LZ4), queries=(), others=())
    assert qualify(empty, Settings((GPU,))).reasons == ("no task ended",)
    bare = replace(application(LZ4), queries=())
    assert qualify(bare, Settings((GPU,))).reasons == ("no query of SQL: only operators of SQL are known",)


def test_reasons_share_out_all_seconds_of_tasks() -> None:
    (first, *_) = qualified(ODD).reasons
    shares = [int(word.removesuffix("%")) for word in first.split() if word.endswith("%")]
    assert sum(shares) == pytest.approx(100, abs=len(shares))
    assert "unknown, so on the CPU (BatchEvalPython, Window, OverwriteByExpression)" in first
    assert "in failed tasks" in first
    assert "outside of SQL" in first


def test_a_faster_device_never_gains_less() -> None:
    gains = [
        qualified(LARGE, Accelerator(DeviceKind.GPU, parallelism=parallelism)).gain
        for parallelism in (2.5, 8.0, 64.0, 1000.0)
    ]
    known = [gain for gain in gains if gain is not None]
    assert known == sorted(known)
    assert known[0] < known[-1]


def test_a_device_slower_than_the_cores_is_not_used() -> None:
    found = qualified(LARGE, Accelerator(DeviceKind.GPU, parallelism=1.9))
    assert found.saved_s == 0
    assert found.gain == 1.0


def test_flips_are_within_what_is_met() -> None:
    """Break-evens at 1e-17 s are roundings: the CPU's seconds and the device's are proportional there."""
    factors = [
        flip.factor
        for query in qualified(LARGE).queries
        for one in (query.explained.operators if query.explained else ())
        for flip in one.flips
        if flip.factor is not None
    ]
    assert len(factors) > 10
    assert all(1e-6 < factor < 1e6 for factor in factors)


def test_a_preset_asks_for_more() -> None:
    plain, strict = qualified(LARGE), qualify(application(LARGE), Settings((GPU,), preset=40.0))
    assert plain.saved_s > 0
    assert strict.saved_s == 0


def test_stated_times_precede_measured_ones() -> None:
    found = qualify(application(LARGE), Settings((GPU,), t={"filter": 5.0}))
    works = [one.decision.work for query in found.queries if query.explained for one in query.explained.operators]
    assert {work.cpu_s_per_100mb for work in works if work.kind == "filter"} == {5.0}


def test_rows_summary_and_document_agree() -> None:
    found = qualified(ODD)
    assert {len(row) for row in rows_of(found)} == {len(COLUMNS)}
    assert len(summary_of(found)) == len(SUMMARY)
    document = document_of(found)
    assert (
        document["unknown_operators"]
        == dict(unknown_of(found))
        == {"Window": 1, "BatchEvalPython": 2, "OverwriteByExpression": 1}
    )
    assert document["gain"] == found.gain
    assert [query["task_s"] for query in document["queries"]] == [query.ran.query.run_s for query in found.queries]
    assert notes_of(found) == [
        "odd ones: unknown operators, counted as CPU: BatchEvalPython (2), Window (1), OverwriteByExpression (1)",
        "odd ones: 1 of 4 queries failed",
    ]
