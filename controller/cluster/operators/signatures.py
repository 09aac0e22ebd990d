"""Equality of graphs by their computation, regardless of names and order of operators.

Operators get colours: a digest of their computation and count, refined by the colours of their inputs and readers until
nothing changes (Weisfeiler and Leman, 1968). Equal graphs have equal signatures; different graphs may have equal
colours; `is_same` distinguishes these, too.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.cluster.operators.values import Flow, Operator, OperatorGraph

if TYPE_CHECKING:
    import networkx


def signature(graph: OperatorGraph) -> str:
    """Return a digest of a graph's kinds, shapes, formats, counts and flows; names do not matter."""
    colours = sorted(_colours(graph).values())
    return _digest(graph.category, *colours)


def canonical(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with operators named by kind and number, in an order that does not depend on names.

    Equal graphs have equal canonical forms if operators of the same colour are interchangeable. That holds for nearly
    all graphs; `is_same` is correct for the others, too.
    """
    colours = _individual(graph)
    counts: dict[str, int] = defaultdict(int)
    names: dict[str, str] = {}
    depth = _depth(graph)
    for operator in sorted(graph.operators, key=lambda operator: (depth[operator.name], colours[operator.name])):
        names[operator.name] = f"{operator.kind}-{counts[operator.kind]}"
        counts[operator.kind] += 1
    places = {name: position for position, name in enumerate(names.values())}
    operators = (_renamed(graph.operator[old], new) for old, new in names.items())
    flows = (Flow(names[flow.src], names[flow.dst], flow.nbytes) for flow in graph.flows)
    ordered = sorted(flows, key=lambda flow: (places[flow.src], places[flow.dst]))
    return OperatorGraph(signature(graph)[:16], tuple(operators), tuple(ordered), graph.category)


def is_same(graph: OperatorGraph, other: OperatorGraph) -> bool:
    """Return whether two graphs compute the same: exact, by search among operators of equal colour (VF2)."""
    if signature(graph) != signature(other):
        return False
    import networkx  # noqa: PLC0415 - takes half a second and is rarely needed

    matcher = networkx.algorithms.isomorphism.DiGraphMatcher(
        _coloured(graph),
        _coloured(other),
        node_match=lambda left, right: left["colour"] == right["colour"],
        edge_match=lambda left, right: left["nbytes"] == right["nbytes"],
    )
    return bool(matcher.is_isomorphic())


def _renamed(operator: Operator, name: str) -> Operator:
    return replace(operator, name=name)


def _colours(graph: OperatorGraph) -> dict[str, str]:
    # Names and libraries do not count: the same work by another library has the same colour.
    first = {operator.name: _digest(repr(replace(operator, name="-", library=""))) for operator in graph.operators}
    return _refined(graph, first)


def _refined(graph: OperatorGraph, colours: dict[str, str]) -> dict[str, str]:
    """Return colours refined by those of neighbours."""
    classes = len(set(colours.values()))
    while True:
        colours = {
            name: _digest(
                colour,
                "reads",
                *sorted(f"{colours[flow.src]} {flow.nbytes}" for flow in graph.into[name]),
                "read by",
                *sorted(f"{colours[flow.dst]} {flow.nbytes}" for flow in graph.out_of[name]),
            )
            for name, colour in colours.items()
        }
        # Refinement only splits classes, so the same number as before means that it is done.
        if len(set(colours.values())) == classes:
            return colours
        classes = len(set(colours.values()))


def _individual(graph: OperatorGraph) -> dict[str, str]:
    """Return a distinct colour for each operator: ties are broken by singling out one at a time."""
    colours = _colours(graph)
    while True:
        alike: dict[str, list[str]] = defaultdict(list)
        for name, colour in colours.items():
            alike[colour].append(name)
        tied = min((colour for colour, names in alike.items() if len(names) > 1), default=None)
        if tied is None:
            return colours
        # Twins are numbered at once, as any order of them gives the same graph.
        chosen = alike[tied] if _are_twins(graph, alike[tied]) else alike[tied][:1]
        singled_out = {name: _digest(tied, str(index)) for index, name in enumerate(chosen)}
        colours = _refined(graph, colours | singled_out)


def _are_twins(graph: OperatorGraph, names: list[str]) -> bool:
    """Return whether operators of one colour have the same inputs and readers."""
    around = {
        (
            frozenset((flow.src, flow.nbytes) for flow in graph.into[name]),
            frozenset((flow.dst, flow.nbytes) for flow in graph.out_of[name]),
        )
        for name in names
    }
    return len(around) == 1


def _depth(graph: OperatorGraph) -> dict[str, int]:
    """Return the length of the longest path to each operator."""
    depths: dict[str, int] = {}
    for name in graph.order:
        depths[name] = max((depths[flow.src] + 1 for flow in graph.into[name]), default=0)
    return depths


def _coloured(graph: OperatorGraph) -> networkx.DiGraph:
    import networkx  # noqa: PLC0415

    coloured = networkx.DiGraph()
    for name, colour in _colours(graph).items():
        coloured.add_node(name, colour=colour)
    for flow in graph.flows:
        coloured.add_edge(flow.src, flow.dst, nbytes=flow.nbytes)
    return coloured


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
