"""Operator graphs as tasks carry them, and what type a task is of."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from msgspec import json

from controller.api.resources import Task
from controller.api.resources.base import MAX_NAME
from controller.api.resources.task import OperatorCount, TaskSpec
from controller.cluster.operators import Flow, Operator, OperatorGraph

_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]+")
_DIGEST: Final = 12
_SHORT: Final = 6


def operators_of(graph: OperatorGraph) -> tuple[OperatorCount, ...]:
    """Return a graph's operators as a task's spec has them; bytes of flows are not kept."""
    return tuple(
        OperatorCount(
            name=one.name,
            operator=one.kind,
            count=one.executions,
            sizes=dict(one.shape),
            number_format=one.number_format,
            input_bytes=one.input_bytes,
            output_bytes=one.output_bytes,
            feeds=tuple(flow.dst for flow in graph.out_of[one.name]),
            code=one.code,
        )
        for one in graph.operators
    )


def graph_of(name: str, spec: TaskSpec) -> OperatorGraph | None:
    """Return the graph of what a task computes, None where it says nothing; raise OperatorError for what is none."""
    if not spec.operators:
        return None
    operators = tuple(_operator(one) for one in spec.operators)
    flows = tuple(Flow(one.name, reader) for one in spec.operators for reader in one.feeds)
    return OperatorGraph(name, operators, flows, spec.category or "")


def type_of(task: Task) -> str:
    """Return a task's type: what its spec says, else one that tasks of the same program and operators have alone."""
    spec = task.spec
    if spec.task_type is not None:
        return spec.task_type
    same = json.encode((spec.program, spec.category, spec.operators), order="deterministic")
    return f"{spec.program.kind}-{hashlib.sha256(same).hexdigest()[:_DIGEST]}"


def name_of(*words: str | int) -> str:
    """Return words as one name that a resource may have; a digest of them tells apart what would read alike."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()[:_SHORT]
    text = "-".join(_NOT_IN_NAMES.sub("-", str(word).lower()).strip("-.") or "0" for word in words)
    return f"{text[: MAX_NAME - 1 - _SHORT].strip('-.')}-{digest}"


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
    )
