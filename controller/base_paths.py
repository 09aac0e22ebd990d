"""Shortest paths by configured propagation delay, then hops: what traffic follows when nobody decides otherwise."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dataplane.fabric.topology import DirectedLink, Topology

NextHops = Mapping[str, Mapping[str, tuple[DirectedLink, ...]]]
"""By destination switch, then by switch: the equally good links to leave by, in order of port."""


class _Cost(NamedTuple):
    """Compared field by field: delay first, hops break ties, so that links of no delay cannot make a loop."""

    delay_ns: int
    hops: int


def next_hops(topology: Topology) -> NextHops:
    """Return, for every destination switch, every other switch's equal-cost links; unreachable ones are absent."""
    return {node.name: _towards(topology, node.name) for node in topology.switches}


def base_paths(hops: NextHops, src: str, dst: str) -> Iterator[tuple[str, ...]]:
    """Yield every equal-cost path between two switches, both ends included, in order of ports; none if unreachable."""
    if src == dst:
        yield (dst,)
        return
    for link in hops[dst].get(src, ()):
        for rest in base_paths(hops, link.head.node, dst):
            yield (src, *rest)


def switch_links(topology: Topology) -> dict[str, tuple[DirectedLink, ...]]:
    """Return each switch's links to other switches, in order of port."""
    found: dict[str, list[DirectedLink]] = {node.name: [] for node in topology.switches}
    for link in topology.directed_links.values():
        if link.tail.node in found and link.head.node in found:
            found[link.tail.node].append(link)
    return {name: tuple(sorted(links, key=lambda link: link.tail.port)) for name, links in found.items()}


def _towards(topology: Topology, destination: str) -> dict[str, tuple[DirectedLink, ...]]:
    links = switch_links(topology)
    best = _distances(links, destination)
    found: dict[str, tuple[DirectedLink, ...]] = {}
    for name, leaving in links.items():
        if name == destination or name not in best:
            continue
        found[name] = tuple(link for link in leaving if _plus(best.get(link.head.node), link) == best[name])
    return found


def _distances(links: Mapping[str, tuple[DirectedLink, ...]], destination: str) -> dict[str, _Cost]:
    """Dijkstra from the destination; cables are the same both ways, so distances from it are distances to it."""
    best: dict[str, _Cost] = {}
    queue = [(_Cost(0, 0), destination)]
    while queue:
        cost, name = heapq.heappop(queue)
        if name in best:
            continue
        best[name] = cost
        for link in links[name]:
            if link.head.node not in best:
                heapq.heappush(queue, (_Cost(cost.delay_ns + link.delay_ns, cost.hops + 1), link.head.node))
    return best


def _plus(cost: _Cost | None, link: DirectedLink) -> _Cost | None:
    return None if cost is None else _Cost(cost.delay_ns + link.delay_ns, cost.hops + 1)
