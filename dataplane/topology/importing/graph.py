"""A foreign graph: nodes and edges with attributes as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two nodes, by their ids."""

    a: str
    b: str
    attributes: Mapping[str, str]


@dataclass(slots=True)
class Graph:
    """Nodes by id, in the file's order, and edges. Names of attributes are in lower case.

    In a directed graph opposite edges are the two directions of one link.
    """

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    is_directed: bool = False
