"""Pipelines of several graphs: a query whose rows a training step reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from controller.acceleration.errors import AccelerationError
from controller.cluster.operators import Flow, Operator, OperatorGraph


def mixed(name: str, parts: Sequence[OperatorGraph], flows: Sequence[Flow] = ()) -> OperatorGraph:
    """Return graphs in sequence as one; operators are named `part/operator` by their graph's name.

    The output of a graph's last operators (`output_bytes`) is read by the operators of the next graph that read from
    outside, unless `flows`, in the new names, states the readers. An operator that then reads a flow reads that much
    less from outside. Raise AccelerationError for two graphs of one name, and if nothing in the next graph reads.
    """
    if len({part.name for part in parts}) < len(parts):
        raise AccelerationError(f"{name}: parts of a pipeline need distinct names", at="parts")
    operators = [_renamed(part, operator) for part in parts for operator in part.operators]
    inside = [
        Flow(f"{part.name}/{flow.src}", f"{part.name}/{flow.dst}", flow.nbytes) for part in parts for flow in part.flows
    ]
    between = list(flows)
    if not between:
        for before, after in pairwise(parts):
            between += _handed_over(name, before, after)
    read: dict[str, int] = {}
    for flow in between:
        read[flow.dst] = read.get(flow.dst, 0) + (flow.nbytes or 0)
    sources = {flow.src for flow in between}
    kept = tuple(
        replace(
            operator,
            input_bytes=None
            if operator.input_bytes is None
            else max(operator.input_bytes - read.get(operator.name, 0), 0),
            output_bytes=0 if operator.name in sources else operator.output_bytes,
        )
        for operator in operators
    )
    return OperatorGraph(name, kept, (*inside, *between), "mixed")


def _renamed(part: OperatorGraph, operator: Operator) -> Operator:
    return replace(operator, name=f"{part.name}/{operator.name}")


def _handed_over(name: str, before: OperatorGraph, after: OperatorGraph) -> list[Flow]:
    """Return flows from the ends of a graph to the beginnings of the next, each with the share that it reads."""
    ends = [operator for operator in before.operators if not before.out_of[operator.name]]
    begins = [operator for operator in after.operators if operator.input_bytes]
    begins = begins or [operator for operator in after.operators if not after.into[operator.name]]
    if not ends or not begins:
        raise AccelerationError(f"{name}: nothing in {after.name} reads the output of {before.name}")
    return [
        Flow(f"{before.name}/{src.name}", f"{after.name}/{dst.name}", src.output_bytes)
        for src in ends
        for dst in begins
    ]
