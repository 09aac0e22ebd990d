"""Topology files of containerlab (*.clab.yml): nodes by kind, and links between their interfaces."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from dataplane.config import Document, loads_document
from dataplane.errors import ConfigError
from dataplane.topology.importing.graph import Edge, Graph

_HOSTS: Final = frozenset({"ext-container", "host", "generic_vm", "k8s-kind"})
_LINUX: Final = "linux"
_OUTSIDE: Final = frozenset({"host", "mgmt-net", "macvlan"})
"""Names before an endpoint's colon that are no nodes: interfaces of the lab's machine."""
_SINGLE: Final = frozenset({"host", "mgmt-net", "macvlan", "dummy", "vxlan", "vxlan-stitch"})
"""Types of links of which only one end is a node."""
_PLACE: Final = {"graph-geocoordinatelat": "latitude", "graph-geocoordinatelng": "longitude"}
"""Labels that containerlab's drawings take coordinates from, in lower case."""
_VARIABLE: Final = re.compile(r"\$\{?[A-Za-z_]")
_TOP: Final = re.compile(rb"^topology[ \t]*:", re.MULTILINE)
_OURS: Final = re.compile(rb"^[\"']?millrace[\"']?[ \t]*:", re.MULTILINE)


class _Node(msgspec.Struct, frozen=True):
    kind: str | None = None
    group: str | None = None
    labels: dict[str, Any] | None = None


class _End(msgspec.Struct, frozen=True):
    node: str
    interface: str = ""


class _Link(msgspec.Struct, frozen=True):
    type: str = "veth"
    endpoints: list[str | _End] | None = None
    endpoint: _End | None = None
    vars: dict[str, Any] | None = None


class _Lab(msgspec.Struct, frozen=True):
    nodes: dict[str, _Node | None]
    links: list[_Link] | None = None
    defaults: _Node | None = None
    groups: dict[str, _Node | None] | None = None


class _File(msgspec.Struct, frozen=True):
    topology: _Lab


def is_containerlab(data: bytes) -> bool:
    """Return whether a YAML file has containerlab's form rather than ours."""
    return _TOP.search(data) is not None and _OURS.search(data) is None


def read_containerlab(data: bytes, file: str) -> Graph:
    """Return a lab's graph; raise ConfigError with line and key."""
    if not is_containerlab(data):
        raise ConfigError("is not a topology of containerlab, which has the key topology", file=file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=file) from None
    return _Reader(loads_document(text, _File, file=file)).graph_of_file()


class _Reader:
    def __init__(self, document: Document[_File]) -> None:
        self._document, self._lab = document, document.value.topology
        self._graph = Graph()

    def graph_of_file(self) -> Graph:
        kinds = {name: self._kind(name, node or _Node()) for name, node in self._lab.nodes.items()}
        for name, node in self._lab.nodes.items():
            labels = {label.lower(): str(value) for label, value in ((node and node.labels) or {}).items()}
            self._graph.nodes[name] = {_PLACE[label]: text for label, text in labels.items() if label in _PLACE}
        for at, link in enumerate(self._lab.links or ()):
            self._link(link, f"topology.links[{at}]")
        for name in self._hosts(kinds):
            self._graph.nodes[name]["type"] = "host"
        return self._graph

    def _kind(self, name: str, node: _Node) -> str:
        key = f"topology.nodes.{name}"
        self._check_text(name, key)
        group = (self._lab.groups or {}).get(node.group or "") or _Node()
        kind = node.kind or group.kind or (self._lab.defaults or _Node()).kind
        if kind is None:
            raise self._document.error("has no kind, and there is no default kind", key)
        self._check_text(kind, f"{key}.kind" if node.kind else key)
        return kind

    def _check_text(self, text: str, key: str) -> None:
        if _VARIABLE.search(text) or "{{" in text:
            raise self._document.error(f"{text[:60]!r} has a variable, which is not read: write its value", key)

    def _link(self, link: _Link, key: str) -> None:
        ends = [self._node_at(end, f"{key}.endpoints[{at}]") for at, end in enumerate(link.endpoints or ())]
        if link.type in _SINGLE or None in ends:
            about = link.endpoint.node if link.endpoint else next((end for end in ends if end is not None), key)
            self._graph.assumptions.append(("links with the lab's machine are left out", about))
            return
        if link.type != "veth":
            raise self._document.error(f"links of type {link.type[:40]!r} are not read", f"{key}.type")
        if len(ends) != 2:
            raise self._document.error(f"a link has two endpoints, not {len(ends)}", f"{key}.endpoints")
        attributes = {
            name.lower(): str(value)
            for name, value in (link.vars or {}).items()
            if isinstance(value, str | int | float) and not isinstance(value, bool)
        }
        self._graph.edges.append(Edge(str(ends[0]), str(ends[1]), attributes))

    def _node_at(self, end: str | _End, key: str) -> str | None:
        """Return an endpoint's node, None for one outside the lab."""
        if isinstance(end, str):
            self._check_text(end, key)
            node, colon, interface = end.partition(":")
            if not colon or not interface:
                raise self._document.error(f"{end[:60]!r} is not an endpoint such as 'a:eth1'", key)
        else:
            node = end.node
        if node in self._lab.nodes:
            return node
        if node in _OUTSIDE:
            return None
        raise self._document.error(f"there is no node {node[:60]!r}", key)

    def _hosts(self, kinds: dict[str, str]) -> list[str]:
        """Return the nodes that are hosts; containers of kind linux may be routers, too."""
        neighbours: dict[str, set[str]] = {name: set() for name in kinds}
        for edge in self._graph.edges:
            if edge.a != edge.b:
                neighbours[edge.a].add(edge.b)
                neighbours[edge.b].add(edge.a)
        hosts = {name for name, kind in kinds.items() if kind in _HOSTS}
        leaves = {name for name, kind in kinds.items() if kind == _LINUX and len(neighbours[name]) == 1}
        for name, kind in kinds.items():
            if name in leaves and not neighbours[name] & (leaves | hosts):
                hosts.add(name)
                self._graph.assumptions.append(("nodes of kind linux with one neighbour are hosts", name))
            elif kind == _LINUX:
                self._graph.assumptions.append(("other nodes of kind linux are switches", name))
        return sorted(hosts)
