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
            name=operator.name,
            operator=operator.kind,
            count=operator.executions,
            sizes=dict(operator.shape),
            number_format=operator.number_format,
            input_bytes=operator.input_bytes,
            output_bytes=operator.output_bytes,
            seconds=None if seconds is None else seconds.get(operator.name),
            feeds=tuple(flow.dst for flow in graph.out_of[operator.name]),
            code=operator.code,
            library=operator.library,
        )
        for operator in graph.operators
    )


def traced_operators(
    graph: OperatorGraph, seconds: Mapping[str, float], run_time_s: float
) -> tuple[OperatorCount, ...]:
    """Return the operators of a traced program; the remaining run time becomes an operator, too.

    So work that no kernel represents is part of what probes are known to leave out.
    """
    operators = operators_of(graph, {operator.name: seconds.get(operator.name, 0.0) for operator in graph.operators})
    rest_s = run_time_s - sum(count.seconds or 0.0 for count in operators)
    if not operators or rest_s <= 0:
        return operators
    return (*operators, OperatorCount(name=REST, operator=REST, seconds=rest_s))


def graph_of(name: str, spec: TaskSpec) -> OperatorGraph | None:
    """Return the graph of a task, None if it has no operators; raise OperatorError for an invalid one."""
    return graph_of_operators(name, spec.operators, spec.category or "") if spec.operators else None


def graph_of_operators(name: str, counts: Sequence[OperatorCount], category: str = "") -> OperatorGraph:
    """Return the graph of a task's operators; raise OperatorError for an invalid one."""
    operators = tuple(_operator(count) for count in counts)
    flows = tuple(Flow(count.name, reader) for count in counts for reader in count.feeds)
    return OperatorGraph(name, operators, flows, category)


def _operator(count: OperatorCount) -> Operator:
    return Operator(
        count.name,
        count.operator,
        tuple(sorted(count.sizes.items())),
        count.number_format,
        max(count.count, 1),
        count.input_bytes,
        count.output_bytes,
        code=count.code,
        library=count.library,
    )
