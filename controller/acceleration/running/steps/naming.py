"""Names the steps of a bound plan: its operators that take time, from the scans to the root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.acceleration.plans import ROOT
from controller.acceleration.running.statements.bound import Node, children
from controller.acceleration.running.steps.pushing import AGGREGATE, COMPARISON_JOIN, CROSS, FILTER, PROJECTION
from controller.acceleration.values import CPU

FINAL: Final = ROOT
"""Prefix of the names of steps at the root, over merged rows."""
_KINDS: Final = {
    FILTER: "filter",
    AGGREGATE: "aggregate",
    "LOGICAL_DISTINCT": "aggregate",
    "LOGICAL_ORDER_BY": "sort",
    COMPARISON_JOIN: "join",
    "LOGICAL_ANY_JOIN": "join",
    CROSS: "join",
}
_THROUGH: Final = frozenset({FILTER, PROJECTION})


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with a name of its own, such as `filter-1`; `reads` are the operators whose rows it takes."""

    name: str
    kind: str
    node: Node
    reads: tuple[Node, ...]

    @property
    def has_several(self) -> bool:
        """True if it stands for several operators, which DuckDB orders."""
        own = children(self.node)
        return self.kind == "join" and [id(node) for node in own] != [id(node) for node in self.reads]


@dataclass(slots=True)
class _Namer:
    steps: list[Step] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)

    def name(self, node: Node) -> None:
        """Add the steps of an operator and of all below it."""
        if id(node) in self.seen:
            return  # a common table expression that is read several times
        self.seen.add(id(node))
        reads, kind = tuple(children(node)), _kind(node)
        if _has_cross(node):
            # DuckDB orders these joins by its own lights, so none of them is a step by itself, nor what filters them.
            kind, reads = "join", tuple(_ends(node))
        elif node["type"] == "LOGICAL_LIMIT" and reads[0]["type"] == "LOGICAL_ORDER_BY":
            kind, reads = "top-n", tuple(children(reads[0]))
        for child in reads:
            self.name(child)
        if kind:
            self.counts[kind] += 1
            self.steps.append(Step(f"{kind}-{self.counts[kind]}", kind, node, reads))


def elsewhere(devices: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the devices other than the CPU of one part's steps: those on the shards (''), or at the root (FINAL)."""
    return {
        name: device
        for name, device in devices.items()
        if device != CPU and name.startswith(FINAL) is (prefix == FINAL)
    }


def steps_of(plan: Node) -> tuple[Step, ...]:
    """Return the steps of a plan, each after those that it reads; the same plan has the same names everywhere."""
    namer = _Namer()
    namer.name(plan)
    return tuple(namer.steps)


def _kind(node: Node) -> str:
    if node["type"] == PROJECTION:
        return "project" if formulas_of(node) else ""
    return _KINDS.get(node["type"], "")


def formulas_of(node: Node) -> int:
    """Return how many columns a projection computes."""
    plain = {"BOUND_REF", "BOUND_CONSTANT"}
    return sum(each["expression_class"] not in plain for each in node["expressions"])


def _has_cross(node: Node) -> bool:
    is_region = _is_inner(node) or (node["type"] == FILTER and _leads_to_join(node))
    return is_region and any(each["type"] == CROSS for each in _inside(node))


def _inside(node: Node) -> Iterator[Node]:
    """Yield the operators of one group of inner joins."""
    yield node
    for child in children(node):
        if _is_inner(child) or (child["type"] in _THROUGH and _leads_to_join(child)):
            yield from _inside(child)


def _ends(node: Node) -> Iterator[Node]:
    """Yield the operators whose rows a group of inner joins reads."""
    for child in children(node):
        if _is_inner(child) or (child["type"] in _THROUGH and _leads_to_join(child)):
            yield from _ends(child)
        else:
            yield child


def _is_inner(node: Node) -> bool:
    return bool(node["type"] == CROSS or (node["type"] == COMPARISON_JOIN and node["join_type"] == "INNER"))


def _leads_to_join(node: Node) -> bool:
    (child,) = children(node)
    return _is_inner(child) or (child["type"] in _THROUGH and _leads_to_join(child))
