"""A foreign graph: nodes and edges with attributes as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge between two nodes, by their ids, and the numbers of its ports, None: any."""

    a: str
    b: str
    attributes: Mapping[str, str]
    a_port: int | None = None
    b_port: int | None = None

    def port_at(self, node: str) -> int | None:
        """Return the number of its port at one of its nodes."""
        return self.a_port if node == self.a else self.b_port


@dataclass(frozen=True, slots=True)
class Addresses:
    """Addresses of a host, None: automatic."""

    ipv4: str | None = None
    mac: str | None = None


@dataclass(slots=True)
class Graph:
    """Nodes by id, in the file's order, and edges. Names of attributes are in lower case.

    In a directed graph opposite edges are the two directions of one link.
    """

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    is_directed: bool = False
    addresses: dict[str, Addresses] = field(default_factory=dict)
    """Addresses of hosts."""
    assumptions: list[tuple[str, str]] = field(default_factory=list)
    """Assumptions of the reader, each with its subject."""
