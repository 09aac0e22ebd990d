"""Pairs of hosts that exchange probes, so that every link between switches is crossed in both directions."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from controller.network.base_paths import NextHops, next_hops
from dataplane.topology.values import LinkKey, Topology


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """Pairs of hosts, sender first; `uncovered` are links between switches that no base path crosses."""

    pairs: tuple[tuple[str, str], ...]
    uncovered: tuple[LinkKey, ...]


def plan_probes(topology: Topology) -> ProbePlan:
    """Return few pairs of hosts whose base paths, equally good ones included, cross as many links as base paths can.

    One host represents each switch. Greedy: the pair that adds most links comes next (Chvatal, 1979); the time grows
    with the square of the number of switches that have hosts.
    """
    hops = next_hops(topology)
    speakers: dict[str, str] = {}
    for host, end in topology.attachment.items():
        speakers.setdefault(end.node, host)
    crossed = {
        (src, dst): _links(hops, src, dst) for src in speakers for dst in speakers if src != dst and src in hops[dst]
    }
    missing = {key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch}
    pairs: list[tuple[str, str]] = []
    queue = [(-len(links), pair) for pair, links in crossed.items()]
    heapq.heapify(queue)
    while queue and missing:
        queued, pair = heapq.heappop(queue)
        adds = len(crossed[pair] & missing)
        if adds and adds < -queued:
            # Others have covered some of its links since: requeue it with its present number.
            heapq.heappush(queue, (-adds, pair))
        elif adds:
            pairs.append((speakers[pair[0]], speakers[pair[1]]))
            missing -= crossed[pair]
    return ProbePlan(tuple(pairs), tuple(key for key in topology.directed_links if key in missing))


def _links(hops: NextHops, src: str, dst: str) -> set[LinkKey]:
    """Return every link on any of the equally good base paths between two switches."""
    links: set[LinkKey] = set()
    seen, waiting = {src}, [src]
    while waiting:
        for link in hops[dst].get(waiting.pop(), ()):
            links.add(link.key)
            if link.head.node not in seen:
                seen.add(link.head.node)
                waiting.append(link.head.node)
    return links
