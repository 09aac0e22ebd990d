"""Operator graphs in the specs of tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from controller.apiserver.resources.task import OperatorCount, TaskSpec
from controller.cluster.operators import Flow, Operator, OperatorGraph

REST: Final = "rest"
"""The part of a program outside its operators."""


def operators_of(graph: OperatorGraph, seconds: Mapping[str, float] | None = None) -> tuple[OperatorCount, ...]:
    """Convert a graph to the operators of a task's spec; bytes of flows are dropped.

    `seconds` are the measured total times of operators, by name, where known.
    """
    return tuple(
        OperatorCount(
            name=one.name,
            operator=one.kind,
            count=one.executions,
            sizes=dict(one.shape),
            number_format=one.number_format,
            input_bytes=one.input_bytes,
            output_bytes=one.output_bytes,
            seconds=None if seconds is None else seconds.get(one.name),
            feeds=tuple(flow.dst for flow in graph.out_of[one.name]),
            code=one.code,
            library=one.library,
        )
        for one in graph.operators
    )


def traced_operators(
    graph: OperatorGraph, seconds: Mapping[str, float], run_time_s: float
) -> tuple[OperatorCount, ...]:
    """Return the operators of a traced program; the remaining run time becomes an operator, too.

    So work that no kernel represents is part of what probes are known to leave out.
    """
    found = operators_of(graph, {one.name: seconds.get(one.name, 0.0) for one in graph.operators})
    rest_s = run_time_s - sum(one.seconds or 0.0 for one in found)
    if not found or rest_s <= 0:
        return found
    return (*found, OperatorCount(name=REST, operator=REST, seconds=rest_s))


def graph_of(name: str, spec: TaskSpec) -> OperatorGraph | None:
    """Return the graph of a task, None if it has no operators; raise OperatorError for an invalid one."""
    return graph_of_operators(name, spec.operators, spec.category or "") if spec.operators else None


def graph_of_operators(name: str, counts: Sequence[OperatorCount], category: str = "") -> OperatorGraph:
    """Return the graph of a task's operators; raise OperatorError for an invalid one."""
    operators = tuple(_operator(one) for one in counts)
    flows = tuple(Flow(one.name, reader) for one in counts for reader in one.feeds)
    return OperatorGraph(name, operators, flows, category)


def _operator(one: OperatorCount) -> Operator:
    return Operator(
        one.name,
        one.operator,
        tuple(sorted(one.sizes.items())),
        one.number_format,
        max(one.count, 1),
        one.input_bytes,
        one.output_bytes,
        code=one.code,
        library=one.library,
    )
