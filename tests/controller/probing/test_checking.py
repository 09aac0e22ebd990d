"""A probe task takes seconds on one unit: longer ones are refused with a suggestion."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.operators import Operator, OperatorGraph
from controller.probing import checking
from controller.probing.building import BuildSettings, build
from controller.probing.errors import ProbeError
from controller.probing.library import KernelLibrary
from controller.probing.values import Match, ProbeTask
from dataplane.topology.values import NumberFormat

DGEMM = KernelLibrary().kernel("dgemm")
SETTINGS = BuildSettings(limit_s=5.0)


def probe_of(*executions: int, settings: BuildSettings = SETTINGS) -> ProbeTask:
    operators = tuple(
        Operator.of(f"o{at}", "gemm", {"m": 64, "n": 64, "k": 64 + at}, NumberFormat.FP64, count)
        for at, count in enumerate(executions)
    )
    matches = tuple(Match(operator.name, DGEMM, 1.0, operator.shape) for operator in operators)
    (probe,) = build(OperatorGraph("target", operators, (), "hpc"), matches, settings)
    return probe


def times(probe: ProbeTask, *seconds: float) -> dict[str, float]:
    return dict(zip((use.name for use in probe.uses), seconds, strict=True))


def test_a_probe_task_takes_seconds_on_one_unit() -> None:
    probe = probe_of(3000, 2000)
    assert checking.check(probe, times(probe, 0.5, 1.0), SETTINGS) == pytest.approx(3.5)


def test_a_refusal_names_the_kernel_and_the_ratio_that_would_do() -> None:
    probe = probe_of(30_000, 2000)
    execution_s = times(probe, 0.5, 1.0)
    with pytest.raises(ProbeError, match=r"takes about 17 s .*dgemm at k=64 m=64 n=64 \(of o0\) x 30 takes 15 s of"):
        checking.check(probe, execution_s, SETTINGS)
    assert checking.least_ratio(probe, execution_s, SETTINGS) == 3600


def test_refusal_names_reduced_counts_if_they_help() -> None:
    probe = probe_of(10)
    with pytest.raises(ProbeError, match=r"use a ratio of 1000:1 and reduce small counts, too \(small: 1\)"):
        checking.check(probe, times(probe, 1.0), SETTINGS)


def test_refusal_names_a_single_execution_that_is_too_long() -> None:
    probe = probe_of(1)
    with pytest.raises(ProbeError, match=r"once each takes 20 s, .* sizes with 25\.0% of the work"):
        checking.check(probe, times(probe, 20.0), SETTINGS)


@given(
    st.lists(st.integers(11, 10**7), min_size=1, max_size=5),
    st.data(),
)
def test_the_ratio_that_is_offered_does(executions: list[int], data: st.DataObject) -> None:
    probe = probe_of(*executions)
    seconds = [data.draw(st.floats(1e-6, 10.0)) for _ in executions]
    execution_s = times(probe, *seconds)
    try:
        checking.check(probe, execution_s, SETTINGS)
    except ProbeError as refused:
        match = re.search(r"ratio of (\d+):1", str(refused))
        if match is None:
            assert sum(seconds) > SETTINGS.limit_s
            return
        settings = BuildSettings(limit_s=5.0, ratio=int(match[1]))
        assert checking.check(probe_of(*executions, settings=settings), execution_s, settings) <= 5.0


def test_each_work_is_tried_once() -> None:
    same = tuple(Operator.of(f"o{at}", "gemm", {"m": 64, "n": 64, "k": 64}, NumberFormat.FP64, 3000) for at in range(3))
    matches = tuple(Match(operator.name, DGEMM, 1.0, operator.shape) for operator in same)
    (probe,) = build(OperatorGraph("target", same, (), "hpc"), matches)
    (use,) = checking.trial(probe).uses
    assert use.repetitions == 1
    assert checking.tried_s(probe, {use.name: 0.5}) == {"dgemm-1": 0.5, "dgemm-2": 0.5, "dgemm-3": 0.5}
