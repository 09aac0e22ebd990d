"""Flows over a fabric: pairs of hosts whose paths are equally long, how often each is reported, and which link is full.

A flow is one UDP 5-tuple between two hosts that no other flow has, so that flows and host pairs are the same. Its path
is one of the shortest, drawn at random, until the fabric routes it elsewhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dataplane.topology.values import LinkKey, Topology

Path = tuple[str, ...]

HEAVY_FLOWS = 1000
"""Flows that carry most of a heavy-tailed mix."""
HEAVY_SHARE = 0.9
"""The share of the reports that are of those."""
SOURCE_PORT, TARGET_PORT = 40_000, 5_001
_LISTED_PAIRS = 1 << 21
"""Beyond this number, pairs of hosts are drawn rather than listed."""


class Mix(StrEnum):
    """Distribution of reports among flows."""

    UNIFORM = "uniform"
    """All flows are reported equally often."""
    HEAVY = "heavy"
    """`HEAVY_FLOWS` carry `HEAVY_SHARE` of the reports, the others the rest."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A flow's hosts, and the switches between them."""

    src: str
    dst: str
    path: Path


@dataclass(slots=True)
class Flows:
    """Flows of a topology with their present paths; the first `heavy` of them are heavy.

    `weights` add up to 1. `numbers` are the places of links among `keys`. `links` has a row for each flow: the numbers
    of the links that leave its switches, the last one the link to its host.
    """

    topology: Topology
    flows: list[Flow]
    weights: NDArray[np.float64]
    heavy: int
    keys: list[LinkKey]
    numbers: dict[LinkKey, int]
    links: NDArray[np.int32]
    number: dict[tuple[str, str], int]

    def __len__(self) -> int:
        return len(self.flows)

    @property
    def hops(self) -> int:
        """Switches on every path."""
        return int(self.links.shape[1])

    def crossing(self, link: LinkKey) -> NDArray[np.int64]:
        """Return the flows whose path has a link, by number."""
        return np.flatnonzero((self.links == self.numbers[link]).any(axis=1))

    def heavy_of(self, flows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some flows that are heavy; all of them where the mix is uniform."""
        return flows[flows < self.heavy] if self.heavy else flows

    def reroute(self, flow: int, path: Path) -> None:
        """Let a flow take another path of as many switches; raise ValueError for one of another length."""
        if len(path) != self.hops:
            raise ValueError(f"{'-'.join(path)} has {len(path)} switches, paths here have {self.hops}")
        old = self.flows[flow]
        self.flows[flow] = Flow(old.src, old.dst, path)
        self.links[flow] = _links_of(self.flows[flow], self.numbers)

    def schedule(self, rng: np.random.Generator, least: int = 1 << 16) -> NDArray[np.int32]:
        """Return a cycle of at least this many reports by flow; each flow is in it.

        Where all are equal, each pass over the flows is a permutation of its own.
        """
        count = len(self.flows)
        if not self.heavy:
            passes = -(-least // count)
            return np.concatenate([rng.permutation(count) for _ in range(passes)]).astype(np.int32)
        drawn = rng.choice(count, size=max(least, 8 * count), p=self.weights)
        return rng.permutation(np.concatenate([drawn, np.arange(count)])).astype(np.int32)


def make_flows(topology: Topology, count: int, mix: Mix, seed: int) -> Flows:
    """Return flows whose paths all have the topology's usual maximum length; raise ValueError for too many."""
    rng = np.random.default_rng(seed)
    edges = {host: end.node for host, end in topology.attachment.items()}
    if topology.collector is not None:
        edges.pop(topology.collector.host)
    network = _Shortest(topology)
    hops = max(network.hops(src, dst) for src in set(edges.values()) for dst in set(edges.values()))
    flows = [
        Flow(src, dst, network.path(edges[src], edges[dst], rng))
        for src, dst in _pairs(list(edges), lambda src, dst: network.hops(edges[src], edges[dst]) == hops, count, rng)
    ]
    heavy = min(HEAVY_FLOWS, count // 2) if mix is Mix.HEAVY else 0
    weights = np.full(count, 1 / count)
    if heavy:
        weights[:heavy], weights[heavy:] = HEAVY_SHARE / heavy, (1 - HEAVY_SHARE) / (count - heavy)
    keys = list(topology.directed_links)
    numbers = {key: number for number, key in enumerate(keys)}
    links = np.array([_links_of(flow, numbers) for flow in flows], np.int32)
    return Flows(
        topology, flows, weights, heavy, keys, numbers, links, {(f.src, f.dst): n for n, f in enumerate(flows)}
    )


def _pairs(
    hosts: Sequence[str], is_long: Callable[[str, str], bool], count: int, rng: np.random.Generator
) -> list[tuple[str, str]]:
    """Return distinct random pairs of hosts that are far apart; raise ValueError where there are fewer."""
    if len(hosts) ** 2 > _LISTED_PAIRS:
        drawn: dict[tuple[str, str], None] = {}
        while len(drawn) < count:
            src, dst = (hosts[int(number)] for number in rng.integers(len(hosts), size=2))
            if is_long(src, dst):
                drawn[src, dst] = None
        return list(drawn)
    pairs = [(src, dst) for src in hosts for dst in hosts if is_long(src, dst)]
    if count > len(pairs):
        raise ValueError(f"{len(pairs)} pairs of hosts are so far apart, fewer than {count}")
    return [pairs[number] for number in rng.choice(len(pairs), count, replace=False)]


def fabric_links(topology: Topology) -> list[LinkKey]:
    """Return the directed links between switches."""
    return [key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch]


def _links_of(flow: Flow, numbers: dict[LinkKey, int]) -> list[int]:
    nodes = (*flow.path, flow.dst)
    return [numbers[LinkKey(a, b)] for a, b in pairwise(nodes)]


class _Shortest:
    """Shortest paths between switches, all links alike."""

    def __init__(self, topology: Topology) -> None:
        self._near: dict[str, list[str]] = {
            name: [end.node for end in ports.values() if end.node in topology.switch]
            for name, ports in topology.neighbours.items()
            if name in topology.switch
        }
        self._far: dict[str, dict[str, int]] = {}

    def hops(self, src: str, dst: str) -> int:
        """Return how many switches a path has."""
        return self._distances(dst)[src] + 1

    def path(self, src: str, dst: str, rng: np.random.Generator) -> Path:
        """Return one of the shortest paths, each next hop as likely as the others."""
        distance, nodes = self._distances(dst), [src]
        while nodes[-1] != dst:
            nearer: Sequence[str] = [n for n in self._near[nodes[-1]] if distance[n] < distance[nodes[-1]]]
            nodes.append(nearer[int(rng.integers(len(nearer)))])
        return tuple(nodes)

    def _distances(self, dst: str) -> dict[str, int]:
        distances = self._far.get(dst)
        if distances is None:
            distances, left = {dst: 0}, deque([dst])
            while left:
                node = left.popleft()
                for other in self._near[node]:
                    if other not in distances:
                        distances[other] = distances[node] + 1
                        left.append(other)
            self._far[dst] = distances
        return distances
