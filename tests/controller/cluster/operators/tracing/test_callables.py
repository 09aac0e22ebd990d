"""Graphs of Python callables: numpy calls, folded by source line, with their data; results do not change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.cluster.operators import Flow
from controller.cluster.operators.tracing import trace_callable


def dense_solve(n: int) -> NDArray[np.floating[Any]]:
    """Solve, and refine the solution three times."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((n, n)) + n * np.eye(n)
    b = np.ones(n)
    x = np.linalg.solve(a, b)
    for _ in range(3):
        x += np.linalg.solve(a, b - a @ x)
    return x


def test_graph_of_a_dense_solve_equals_the_hand_written_one() -> None:
    traced = trace_callable(dense_solve, (50,))
    assert traced.problems == ()
    assert [(operator.signature, operator.executions) for operator in traced.graph.operators] == [
        ("random-numbers fp64 n=2500", 1),
        ("elementwise fp64 n=2500 operands=1", 1),
        ("elementwise fp64 n=2500 operands=2", 1),
        ("solve fp64 columns=1 n=50", 1),
        ("gemv fp64 m=50 n=50", 3),
        ("elementwise fp64 n=50 operands=2", 3),
        ("solve fp64 columns=1 n=50", 3),
        ("elementwise fp64 n=50 operands=2", 3),
    ]
    flows = {(flow.src, flow.dst): flow.nbytes for flow in traced.graph.flows}
    assert flows["elementwise-2", "solve-1"] == 2500 * 8
    assert flows["gemv-1", "elementwise-3"] == 50 * 8
    assert flows["elementwise-3", "solve-2"] == 50 * 8
    assert ("random-numbers-1", "solve-1") not in flows
    # Two of three executions read the loop's earlier output: 2/3 of 400 bytes per execution.
    assert traced.carried == (Flow("elementwise-4", "gemv-1", 267), Flow("elementwise-4", "elementwise-4", 267))


def test_results_are_those_of_an_untraced_run() -> None:
    traced = trace_callable(dense_solve, (50,))
    assert type(traced.result) is np.ndarray
    assert np.array_equal(traced.result, dense_solve(50))
