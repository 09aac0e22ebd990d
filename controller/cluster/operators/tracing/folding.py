"""Graph of a recording: names, flows by first execution, bytes per execution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from controller.cluster.operators.tracing.recording import Folded
from controller.cluster.operators.tracing.values import Traced
from controller.cluster.operators.values import Flow, Operator, OperatorGraph


def traced(
    name: str, recorded: Sequence[Folded], run_time_s: float, problems: tuple[str, ...], result: object = None
) -> Traced:
    """Return operators, named by kind and number, and the flows between them.

    A flow to an operator that was first executed before its source is carried around a loop.
    """
    names = _names(recorded)
    flows = [
        Flow(names[src], names[operator.index], round(nbytes / operator.executions))
        for operator in recorded
        for src, nbytes in operator.reads.items()
        if src in names
    ]
    order = {name: position for position, name in enumerate(names.values())}
    forwards = tuple(flow for flow in flows if order[flow.src] < order[flow.dst])
    carried = tuple(flow for flow in flows if order[flow.src] >= order[flow.dst])
    graph = OperatorGraph(name, tuple(_operator(names[operator.index], operator) for operator in recorded), forwards)
    return Traced(
        graph,
        run_time_s,
        problems,
        {names[operator.index]: operator.seconds for operator in recorded},
        {names[operator.index]: operator.place.label for operator in recorded},
        carried,
        result,
    )


def _names(recorded: Sequence[Folded]) -> dict[int, str]:
    counts: Counter[str] = Counter()
    names: dict[int, str] = {}
    for operator in recorded:
        counts[operator.kind] += 1
        names[operator.index] = f"{operator.kind}-{counts[operator.kind]}"
    return names


def _operator(name: str, folded: Folded) -> Operator:
    return Operator(
        name,
        folded.kind,
        folded.shape,
        folded.what.number_format,
        folded.executions,
        round(folded.outside_bytes / folded.executions),
        round(folded.unread_bytes / folded.executions),
        folded.code,
        folded.library,
    )
