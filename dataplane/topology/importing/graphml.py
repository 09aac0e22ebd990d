"""GraphML, as networkx, yEd and the Topology Zoo write it."""

from __future__ import annotations

from typing import Final
from xml.parsers import expat

from dataplane.errors import ConfigError
from dataplane.topology.importing.graph import Edge, Graph

_DEPTH: Final = 64


def read_graphml(data: bytes, file: str) -> Graph:
    """Return a document's graph; raise ConfigError with the line.

    Document types are refused, so that no entity is ever read or expanded.
    """
    reader = _Reader(file)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ConfigError(f"is not XML: {expat.ErrorString(error.code)}", file=file, line=error.lineno) from None
    except (ValueError, LookupError) as error:  # of an encoding that expat does not know
        raise ConfigError(f"is not XML: {error}", file=file) from None
    if not reader.has_graph:
        raise reader.error("there is no graph")
    reader.leave_out_groups()
    for line, edge in reader.edges:
        for end in (edge.a, edge.b):
            if end not in reader.graph.nodes:
                raise ConfigError(f"an edge ends at {end!r}, which is no node", file=file, line=line)
        reader.graph.edges.append(edge)
    return reader.graph


class _Reader:
    def __init__(self, file: str) -> None:
        self.graph, self.edges, self.has_graph = Graph(), list[tuple[int, Edge]](), False
        self._file = file
        self._names: dict[str, str] = {}
        self._open: list[tuple[str, dict[str, str] | None]] = []
        self._nodes: list[str] = []
        self._groups: dict[str, None] = {}
        self._key: str | None = None
        self._text: list[str] = []
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def error(self, problem: str) -> ConfigError:
        return ConfigError(problem, file=self._file, line=self.parser.CurrentLineNumber)

    def leave_out_groups(self) -> None:
        """Drop nodes that only hold other nodes, as yEd's groups do; one with an edge is a node."""
        ends = {end for _, edge in self.edges for end in (edge.a, edge.b)}
        for group in self._groups:
            if group not in ends:
                attributes = self.graph.nodes.pop(group)
                self.graph.assumptions.append(("groups of nodes are no nodes", attributes.get("label") or group))

    def _doctype(self, *_: object) -> None:
        raise self.error("has a document type, whose entities are not read: remove <!DOCTYPE ...>")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.rpartition(" ")[2]
        owner = self._open[-1][1] if self._open else None
        if len(self._open) >= _DEPTH:
            raise self.error(f"nests deeper than {_DEPTH} elements")
        match name:
            case "graph":
                self.has_graph, owner = True, None
                if self._nodes:
                    self._groups[self._nodes[-1]] = None
                self.graph.is_directed |= attributes.get("edgedefault") == "directed"
            case "key":
                self._names[self._given(attributes, "id")] = attributes.get("attr.name", attributes["id"]).lower()
            case "node":
                node = self._given(attributes, "id")
                if node in self.graph.nodes:
                    raise self.error(f"node {node!r} appears twice")
                owner = self.graph.nodes[node] = {}
                self._nodes.append(node)
            case "edge":
                owner = {}
                ends = self._given(attributes, "source"), self._given(attributes, "target")
                self.edges.append((self.parser.CurrentLineNumber, Edge(*ends, owner)))
            case "hyperedge":
                raise self.error("hyperedges are not read")
            case "data" if owner is not None:
                key = self._given(attributes, "key")
                self._key, self._text = self._names.get(key, key.lower()), []
            case "NodeLabel" if owner is not None:  # yEd keeps it in the drawing
                self._key, self._text = "label", []
        self._open.append((name, owner))

    def _given(self, attributes: dict[str, str], name: str) -> str:
        if name not in attributes:
            raise self.error(f"an element has no {name!r}")
        return attributes[name]

    def _characters(self, text: str) -> None:
        if self._key is not None:
            self._text.append(text)

    def _end(self, _: str) -> None:
        name, owner = self._open.pop()
        if name == "node":
            self._nodes.pop()
        if name in {"data", "NodeLabel"} and self._key is not None and owner is not None:
            owner[self._key] = "".join(self._text).strip()
            self._key = None
