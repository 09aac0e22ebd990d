"""Data flow: reads before writes on some path through code, and dominance between pieces of code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

Vertex = TypeVar("Vertex", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of code on fields, as sets of bits.

    `exposed` are read where they may not have been written before, `written` are written on every path.
    """

    exposed: int = 0
    written: int = 0

    def then(self, following: Effects) -> Effects:
        """Return the effects of this code followed by other code."""
        return Effects(self.exposed | following.exposed & ~self.written, self.written | following.written)


@dataclass(frozen=True, slots=True)
class Edge(Generic[Vertex]):
    """A possible successor (None: the end), and the fields known to be written if this edge is taken."""

    to: Vertex | None
    known: int = 0


def in_sequence(effects: Iterable[Effects]) -> Effects:
    """Return the effects of pieces of code in sequence."""
    return reduce(Effects.then, effects, Effects())


def in_graph(
    effects: Mapping[Vertex, Effects], edges: Mapping[Vertex, Sequence[Edge[Vertex]]], first: Vertex | None
) -> Effects:
    """Return the effects of a graph of code that begins at `first`; a successor not among `effects` is its end."""
    if first not in effects:
        return Effects()
    assert first is not None
    order = reverse_postorder({vertex: [edge.to for edge in outgoing] for vertex, outgoing in edges.items()}, first)
    before: dict[Vertex, int] = dict.fromkeys(order, -1)
    before[first] = 0
    leaving, changed = -1, True
    while changed:
        changed = False
        for vertex in order:
            for edge in edges[vertex]:
                behind = before[vertex] | effects[vertex].written | edge.known
                if edge.to is None or edge.to not in effects:
                    leaving &= behind
                elif before[edge.to] & ~behind:
                    before[edge.to] &= behind
                    changed = True
    exposed = reduce(int.__or__, (effects[vertex].exposed & ~before[vertex] for vertex in order), 0)
    return Effects(exposed, leaving)


def reverse_postorder(following: Mapping[Vertex, Sequence[Vertex | None]], first: Vertex) -> list[Vertex]:
    """Return all reachable vertices, each before its successors as far as there are no cycles."""
    done: list[Vertex] = []
    met: set[Vertex] = {first}
    stack = [(first, iter(following[first]))]
    while stack:
        vertex, edges = stack[-1]
        for name in edges:
            if name is not None and name in following and name not in met:
                met.add(name)
                stack.append((name, iter(following[name])))
                break
        else:
            done.append(vertex)
            stack.pop()
    return done[::-1]


def dominators(
    following: Mapping[Vertex, Sequence[Vertex | None]], first: Vertex
) -> Callable[[Vertex, Vertex], Vertex]:
    """Return a function to the nearest vertex that dominates two: every path to either leads through it; no cycles."""
    order = reverse_postorder(following, first)
    number = {vertex: position for position, vertex in enumerate(order)}
    above: dict[Vertex, Vertex] = {first: first}

    def common(vertex: Vertex, other: Vertex) -> Vertex:
        while vertex != other:
            if number[vertex] < number[other]:
                other = above[other]
            else:
                vertex = above[vertex]
        return vertex

    for vertex in order:
        for name in following[vertex]:
            if name is not None and name in number:
                above[name] = common(above[name], vertex) if name in above else vertex
    return common
