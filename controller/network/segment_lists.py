"""Paths as segment lists of routers that run an IGP: SRv6 (RFC 8986) or SR-MPLS (RFC 8660); pure.

A list has the fewest segments found by taking, from each router on, the farthest one to which the IGP's only shortest
path is the wanted one; where the IGP would not take even the next link, that link's own segment (adjacency).
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import AddressValueError, IPv6Address
from typing import Annotated, Final

from msgspec import Meta, field

from controller.common.errors import ControllerError
from controller.network.intents import FlowSpec, Route
from dataplane.config import Strict
from dataplane.topology.values import DirectedLink, LinkKey, Topology


class Metric(StrEnum):
    """The metric that the routers' IGP adds up."""

    HOPS = "hops"
    DELAY = "delay"
    """The topology's propagation delays."""


Label = Annotated[int, Meta(ge=16, le=(1 << 20) - 1)]
"""An MPLS label; those below 16 are reserved."""


class SegmentsOf(Strict, frozen=True):
    """Segment identifiers of one kind, IPv6 addresses or labels."""

    nodes: dict[str, str | Label]
    """Those of routers, by switch: SRv6's End, a label of the prefix segment."""

    links: dict[str, str | Label] = field(default_factory=dict)
    """Those of links, by `TAIL->HEAD`: SRv6's End.X, a label of the adjacency."""


class SegmentSettings(Strict, frozen=True):
    """The segment identifiers of a network, and what its IGP prefers."""

    topology: str
    """The topology: a file, the name of one that comes along, or a family such as fat-tree:k=4."""

    srv6: SegmentsOf | None = None
    """Identifiers of SRv6; one of the two kinds is needed."""

    mpls: SegmentsOf | None = None
    """Labels of SR-MPLS."""

    metric: Metric = Metric.HOPS
    """The IGP's metric where `costs` has nothing."""

    costs: dict[str, Annotated[int, Meta(ge=1, le=(1 << 24) - 1)]] = field(default_factory=dict)
    """The IGP's costs by `TAIL->HEAD`."""


@dataclass(frozen=True, slots=True)
class SegmentList:
    """A flow's way as segments, in the order in which they are passed; `problem` says why there are none."""

    flow: FlowSpec
    switches: tuple[str, ...]
    segments: tuple[str | int, ...]
    problem: str | None = None


_Tree = Mapping[str, str | None]
"""Shortest paths from one router: the router before each other one, None where several paths are best."""


class SegmentLists:
    """Makes lists for a topology; raises ControllerError, which names the key, for settings that do not fit."""

    def __init__(self, topology: Topology, settings: SegmentSettings) -> None:
        if (settings.srv6 is None) == (settings.mpls is None):
            raise ControllerError("segments: give either srv6 or mpls")
        chosen = settings.srv6 or settings.mpls
        assert chosen is not None
        self.kind: Final = "srv6" if settings.srv6 is not None else "mpls"
        self._nodes, self._links = chosen.nodes, chosen.links
        switches = topology.switch
        inner = {key: link for key, link in topology.directed_links.items() if {key.src, key.dst} <= switches.keys()}
        known = {str(key) for key in inner}
        _check(f"{self.kind}.nodes", chosen.nodes, switches.keys(), f"there is no such switch in {topology.name}")
        _check(f"{self.kind}.links", chosen.links, known, f"there is no such link in {topology.name}")
        _check("costs", settings.costs, known, f"there is no such link in {topology.name}")
        is_right = _is_ipv6 if self.kind == "srv6" else _is_label
        for group, ids in (("nodes", chosen.nodes), ("links", chosen.links)):
            for name, given in ids.items():
                if not is_right(given):
                    wanted = "an IPv6 address" if self.kind == "srv6" else "a label"
                    raise ControllerError(f"segments: {self.kind}.{group}.{name}: {given!r} is not {wanted}")
        self._next: dict[str, list[tuple[str, int]]] = {name: [] for name in switches}
        for key, link in inner.items():
            self._next[key.src].append((key.dst, settings.costs.get(str(key), _cost(link, settings.metric))))
        self._trees: dict[str, _Tree] = {}

    def list_of(self, route: Route) -> SegmentList:
        """Return a route's list; without the segments that it needs, one that says which."""
        path, segments, at = route.switches, [], 0
        while at < len(path) - 1:
            reached = self._farthest(path, at)
            if reached > at:
                where, given = f"nodes.{path[reached]}", self._nodes.get(path[reached])
            else:
                reached = at + 1
                link = LinkKey(path[at], path[reached])
                where, given = f"links.{link}", self._links.get(str(link))
            if given is None:
                return SegmentList(route.flow, path, (), f"no segment {self.kind}.{where} is given")
            segments.append(given)
            at = reached
        return SegmentList(route.flow, path, tuple(segments))

    def _farthest(self, path: Sequence[str], at: int) -> int:
        """Return how far along a path the IGP's only shortest path from its router at `at` is the path itself."""
        tree, reached = self._tree(path[at]), at
        for index in range(at + 1, len(path)):
            if tree.get(path[index]) != path[index - 1]:
                break
            reached = index
        return reached

    def _tree(self, source: str) -> _Tree:
        if source not in self._trees:
            self._trees[source] = _tree_of(source, self._next)
        return self._trees[source]


def _tree_of(source: str, following: Mapping[str, Sequence[tuple[str, int]]]) -> _Tree:
    cost: dict[str, int] = {source: 0}
    before: dict[str, str | None] = {}
    ways: dict[str, int] = {source: 1}
    queue, done = [(0, source)], set[str]()
    while queue:
        so_far, node = heapq.heappop(queue)
        if node in done:
            continue
        done.add(node)
        for neighbour, own in following[node]:
            total = so_far + own
            known = cost.get(neighbour)
            if known is None or total < known:
                cost[neighbour], before[neighbour], ways[neighbour] = total, node, ways[node]
                heapq.heappush(queue, (total, neighbour))
            elif total == known and neighbour not in done:
                ways[neighbour] += ways[node]
    return {node: last if ways[node] == 1 else None for node, last in before.items()}


def _cost(link: DirectedLink, metric: Metric) -> int:
    return 1 if metric is Metric.HOPS else max(link.delay_ns, 1)


def _check(key: str, given: Mapping[str, object], known: Container[str], problem: str) -> None:
    for name in given:
        if name not in known:
            raise ControllerError(f"segments: {key}.{name}: {problem}")


def _is_ipv6(given: str | int) -> bool:
    try:
        IPv6Address(given)
    except (AddressValueError, ValueError):
        return False
    return isinstance(given, str)


def _is_label(given: str | int) -> bool:
    return isinstance(given, int)
