"""A fabric of many switches with flows between all pairs of them, and changes of single links."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import overload

import networkx as nx
import numpy as np

from collectors.values import DelaySource, LinkState, Snapshot
from controller.network.algorithms.trees import DestinationTrees
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.flow_table import FlowTable
from dataplane.topology.values import Endpoint, HostNode, Link, LinkKey, SwitchNode, Topology

RATE_BPS = 100_000_000_000
_NS_PER_LINK = (1_000, 20_000)


def random_fabric(switches: int, degree: int, seed: int) -> Topology:
    """Return a random regular fabric: each switch has `degree` cables of 1 to 20 us and one host."""
    chance = random.Random(seed)
    ports = [1] * switches
    cables = []
    for a, b in nx.random_regular_graph(degree, switches, seed=seed).edges:
        ports[a] += 1
        ports[b] += 1
        ends = Endpoint(f"s{a}", ports[a]), Endpoint(f"s{b}", ports[b])
        cables.append(Link(*ends, RATE_BPS, chance.randrange(*_NS_PER_LINK), 64))
    hosts = tuple(HostNode(f"h{n}", n, IPv4Address(0x0A00_0001 + n)) for n in range(switches))
    access = (Link(Endpoint(f"h{n}", 0), Endpoint(f"s{n}", 1), RATE_BPS, 500, 64) for n in range(switches))
    nodes = tuple(SwitchNode(f"s{n}", n + 1) for n in range(switches))
    return Topology(f"random-{switches}-{degree}", nodes, hosts, (*cables, *access))


class PairNames(Sequence[FlowSpec]):
    """The names of the flows between all pairs of switches, made when they are asked for."""

    def __init__(self, switches: int) -> None:
        self._switches = switches

    def __len__(self) -> int:
        return self._switches * (self._switches - 1)

    @overload
    def __getitem__(self, row: int) -> FlowSpec: ...
    @overload
    def __getitem__(self, row: slice) -> list[FlowSpec]: ...
    def __getitem__(self, row: int | slice) -> FlowSpec | list[FlowSpec]:
        if isinstance(row, slice):
            return [self[index] for index in range(*row.indices(len(self)))]
        dst, src = divmod(row, self._switches - 1)
        return FlowSpec(f"h{src + (src >= dst)}", f"h{dst}")

    def index(self, value: FlowSpec, start: int = 0, stop: int | None = None) -> int:
        """Return the row of a flow."""
        src, dst = int(value.src_host[1:]), int(value.dst_host[1:])
        row = dst * (self._switches - 1) + src - (src > dst)
        if row not in range(len(self))[start:stop]:
            raise ValueError(value)
        return row


def all_pairs(trees: DestinationTrees, rate_bps: int) -> FlowTable:
    """Return a flow from every switch to every other one, on the shortest path, in order of destination."""
    table = trees.table
    size = len(table.switches)
    following = next_links(trees)
    pools, hops = [], []
    for dst in range(size):
        at = np.array([src for src in range(size) if src != dst])
        steps = []
        while (at != dst).any():
            link = np.where(at == dst, -1, following[dst, at])
            steps.append(link)
            at = np.where(at == dst, dst, table.head[link])
        path = np.stack(steps, axis=1)
        hops.append((path >= 0).sum(axis=1))
        pools.append(path[path >= 0])
    source = np.concatenate([np.delete(np.arange(size), dst) for dst in range(size)])
    pool = np.concatenate(pools).astype(np.uint32)
    flows = FlowTable(table, PairNames(size), source.astype(np.uint32), pool, np.concatenate(hops).astype(np.uint32))
    flows.rate_bps[:] = rate_bps
    return flows


def next_links(trees: DestinationTrees) -> np.ndarray:
    """Return by [destination, switch] the first link of the shortest path, 0 at the destination itself."""
    table, distance = trees.table, trees.distance
    links = np.zeros(distance.shape, np.int64)
    for row in range(len(table.links) - 1, -1, -1):
        tight = distance[:, table.head[row]] + trees.costs[row] == distance[:, table.tail[row]]
        links[tight, table.tail[row]] = row
    return links


def idle_states(topology: Topology, factor: Callable[[], float] = lambda: 1.0) -> dict[LinkKey, LinkState]:
    """Return the state of every link between switches, all measured and nearly idle; delays times a factor each."""
    keys = (key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch)
    return {key: link_state(topology, key, factor()) for key in keys}


def link_state(topology: Topology, key: LinkKey, factor: float, *, dead: bool = False) -> LinkState:
    """Return the state of a link at a multiple of its configured delay."""
    link = topology.directed_links[key]
    delay_ns = round(link.delay_ns * factor) + 200
    figures = (link.rate_bps, delay_ns, delay_ns, delay_ns, 0.0, 0.1, link.rate_bps * 9 // 10)
    return LinkState(key, *figures, 1.0 if dead else 0.0, 0, 100, DelaySource.STAMPS)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a link's state."""

    kind: str
    state: LinkState


def changes(topology: Topology, rounds: int, seed: int) -> Iterator[Change]:
    """Yield single changes of random links: slower by a queue, faster again, down, up again, and so on."""
    chance = random.Random(seed)
    keys = [key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch]
    for _ in range(rounds):
        first, second = chance.sample(keys, 2)
        yield Change("slower", link_state(topology, first, chance.uniform(2, 20)))
        yield Change("faster", link_state(topology, first, 1.0))
        yield Change("down", link_state(topology, second, 1.0, dead=True))
        yield Change("up", link_state(topology, second, 1.0))


def snapshot(states: dict[LinkKey, LinkState]) -> Snapshot:
    """Return a snapshot with links only."""
    return Snapshot(0, states, {}, {})
