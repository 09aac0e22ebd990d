"""Tests of extrapolating a program of many steps from traces of a few."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.cluster.operators.tracing import Traced
from tests.benchmarks.probing.extrapolation import extrapolated


def traced(
    steps: int, *, once_s: float = 0.5, step_s: float = 0.01, base_s: float = 1.0, between_s: float = 0.0
) -> Traced:
    """Return the trace of a program that makes ready once, and multiplies twice and sums up once in each step."""
    operators = (
        Operator("load", "table-scan", executions=1),
        Operator("multiply", "gemm", executions=2 * steps),
        Operator("sum", "reduce", executions=steps),
    )
    graph = OperatorGraph("program", operators, (Flow("load", "multiply", 8), Flow("multiply", "sum", 8)), "hpc")
    seconds = {"load": once_s, "multiply": 2 * step_s * steps, "sum": step_s * steps}
    around_s = base_s + between_s * steps
    return Traced(graph, around_s + sum(seconds.values()), seconds=seconds)


@given(
    st.integers(1, 50),
    st.integers(3, 1000),
    st.floats(0.0, 10.0),
    st.floats(1e-6, 1.0),
    st.floats(0.0, 10.0),
    st.floats(0.0, 1.0),
)
def test_extrapolation_is_exact_for_linear_run_times(
    few: int, factor: int, once_s: float, step_s: float, base_s: float, between_s: float
) -> None:
    def of(steps: int) -> Traced:
        return traced(steps, once_s=once_s, step_s=step_s, base_s=base_s, between_s=between_s)

    wanted, whole = few * factor, of(few * factor)
    trace = extrapolated(of(few), of(2 * few), (few, 2 * few), wanted)
    assert trace.graph == whole.graph
    assert trace.seconds == pytest.approx(whole.seconds, abs=1e-9)
    assert trace.run_time_s == pytest.approx(whole.run_time_s, rel=1e-6)


def test_operators_executed_equally_often_are_setup() -> None:
    trace = extrapolated(traced(2), traced(4), (2, 4), 100)
    assert {operator.name: operator.executions for operator in trace.graph.operators} == {
        "load": 1,
        "multiply": 200,
        "sum": 100,
    }
    assert trace.seconds["load"] == pytest.approx(0.5)


def test_operator_only_in_the_longer_trace_grows_from_zero() -> None:
    few = traced(2)
    few = Traced(OperatorGraph("program", few.graph.operators[:2], few.graph.flows[:1], "hpc"), few.run_time_s)
    trace = extrapolated(few, traced(4), (2, 4), 10)
    assert trace.graph.operator["sum"].executions == 4 + 4 * 3


def test_time_outside_operators_stays_at_least_the_longer_traces() -> None:
    quick, slow = traced(4, base_s=0.2), traced(2, base_s=0.9)
    trace = extrapolated(slow, quick, (2, 4), 100)
    assert trace.run_time_s - sum(trace.seconds.values()) == pytest.approx(0.2), "it did not grow with the steps"
    overlapped = traced(4, base_s=-0.1)
    trace = extrapolated(slow, overlapped, (2, 4), 100)
    assert trace.run_time_s == pytest.approx(sum(trace.seconds.values()))


def test_one_slow_trace_bounds_the_cost_per_step() -> None:
    few, more = traced(2, base_s=0.0), traced(4, base_s=0.4)
    trace = extrapolated(few, more, (2, 4), 104)
    assert trace.run_time_s - sum(trace.seconds.values()) == pytest.approx(0.4 + 0.1 * 100)
