"""Extrapolate a program of many steps from traces of few: executions and seconds grow linearly with the steps.

Tracing all steps would cost as much as the task itself. The traces cover n and 2n steps; an operator that is executed
equally often in both belongs to the setup, the others to the steps. Time outside of operators (the interpreter,
imports) is extrapolated in the same way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from controller.cluster.operators import OperatorGraph
from controller.cluster.operators.tracing import Traced


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """A program of all its steps: its graph, the seconds of each operator, and those of the whole program."""

    graph: OperatorGraph
    seconds: dict[str, float]
    run_time_s: float


def extrapolated(few: Traced, more: Traced, steps: tuple[int, int], wanted: int) -> Extrapolated:
    """Return the program with this many steps; `steps` are those of the two traces, with equal operator names."""
    few_steps, more_steps = steps
    further = (wanted - more_steps) / (more_steps - few_steps)
    before = {operator.name: operator.executions for operator in few.graph.operators}
    operators, seconds = [], {}
    for operator in more.graph.operators:
        grown = operator.executions - before.get(operator.name, 0)
        executions = max(1, round(operator.executions + grown * further))
        operators.append(replace(operator, executions=executions))
        seconds[operator.name] = more.seconds.get(operator.name, 0.0) / operator.executions * executions
    around = [traced.run_time_s - math.fsum(traced.seconds.values()) for traced in (few, more)]
    each_s = min(max(0.0, around[1] - around[0]) / (more_steps - few_steps), max(0.0, around[1]) / more_steps)
    rest_s = max(0.0, around[1]) + each_s * (wanted - more_steps)
    graph = OperatorGraph(more.graph.name, tuple(operators), more.graph.flows, more.graph.category)
    return Extrapolated(graph, seconds, math.fsum(seconds.values()) + rest_s)
