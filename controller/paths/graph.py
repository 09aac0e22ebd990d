"""The network as the decider sees it: measured links between switches, and what a path through them is worth.

A measured delay holds more than propagation: the frame's own length, the switch's work. A link that was not measured is
given as much of that as the least loaded measured one shows, or it would look better than it is for not being watched.

A flow loads the path it is on, so a flow's own rate is given back to the links of its path before they are compared:
every figure says what the path offers *this* flow. The rate is the configured one, else the flow's equal share of the
load on the emptiest link of its path, which can only be too high.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice, pairwise

import networkx as nx

from collectors.values import LinkState, Snapshot
from controller.base_paths import base_paths, next_hops
from controller.paths.settings import DecideSettings
from dataplane.fabric.topology import DirectedLink, LinkKey, Topology

Path = tuple[str, ...]

_HOP = 1 << 40
"""Scales delays so that hops, added as 1, only break ties."""

_LONGEST_IDLE_BITS = 2 * 1538 * 8
"""Two Ethernet frames of the usual greatest length, gap included: a link that takes longer than that has a queue."""


@dataclass(frozen=True, slots=True)
class PathFigures:
    """What a path is worth to one flow: delay between its first and last switch, and bandwidth open to the flow.

    `room_bps` is the bandwidth without what the settings keep free on every link.
    """

    switches: Path
    delay_ns: int
    bottleneck_bps: int
    room_bps: int
    dead_link: LinkKey | None

    @property
    def alive(self) -> bool:
        """Whether every link of it carries traffic."""
        return self.dead_link is None

    @property
    def hops(self) -> int:
        """Links between its switches."""
        return len(self.switches) - 1


@dataclass(frozen=True, slots=True)
class Own:
    """A flow's own part in what was measured: its rate, on these links."""

    rate_bps: int
    links: frozenset[LinkKey]


NOBODY = Own(0, frozenset())


class Network:
    """A topology with what can be computed once: its graph of switches, base paths and candidate paths."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.links: dict[LinkKey, DirectedLink] = {
            key: link
            for key, link in topology.directed_links.items()
            if key.src in topology.switch and key.dst in topology.switch
        }
        self.graph = nx.DiGraph()
        self.graph.add_nodes_from(node.name for node in topology.switches)
        self.graph.add_edges_from((key.src, key.dst) for key in self.links)
        self._next_hops = next_hops(topology)
        self._candidates: dict[tuple[str, str, int], tuple[Path, ...]] = {}

    def ends(self, src_host: str, dst_host: str) -> tuple[str, str]:
        """Return the switches that two hosts hang on."""
        return self.topology.attachment[src_host].node, self.topology.attachment[dst_host].node

    def base(self, src: str, dst: str) -> tuple[Path, bool] | None:
        """Return the first base path between two switches and whether it is the only one; None if there is none."""
        found = list(islice(base_paths(self._next_hops, src, dst), 2))
        return (found[0], len(found) == 1) if found else None

    def candidates(self, src: str, dst: str, limit: int) -> tuple[Path, ...]:
        """Return up to `limit` simple paths, shortest configured delay first (Yen), fewer hops on ties."""
        key = (src, dst, limit)
        if key not in self._candidates:
            self._candidates[key] = tuple(islice(self._shortest(src, dst), limit))
        return self._candidates[key]

    def _shortest(self, src: str, dst: str) -> Iterator[Path]:
        def weight(tail: str, head: str, _: object) -> int:
            return self.links[LinkKey(tail, head)].delay_ns * _HOP + 1

        if nx.has_path(self.graph, src, dst):
            yield from (tuple(path) for path in nx.shortest_simple_paths(self.graph, src, dst, weight))


@dataclass(slots=True)
class _LinkView:
    """A link in one round: what is believed of it, worked out once; `load_bps` follows the predicted moves."""

    rate_bps: int
    headroom_bps: int
    delay_ns: int
    nominal_ns: int
    load_bps: int
    dead: bool


@dataclass(slots=True)
class StateGraph:
    """One snapshot laid over a network; `move` predicts what moved flows change."""

    network: Network
    states: Mapping[LinkKey, LinkState]
    settings: DecideSettings
    views: dict[LinkKey, _LinkView] = field(default_factory=dict)
    relieved: set[LinkKey] = field(default_factory=set)
    _least_ns: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, network: Network, snapshot: Snapshot, settings: DecideSettings) -> StateGraph:
        """Return a snapshot's graph; links without believable telemetry have their configured figures."""
        graph = cls(network, snapshot.links, settings)
        idle = graph._idle_excess_ns()
        for key, link in network.links.items():
            graph.views[key] = graph._view(key, link, _nominal_ns(link, idle))
        return graph

    def fresh(self, key: LinkKey) -> LinkState | None:
        """Return a link's state if it is believable, None if the configured figures must do."""
        state = self.states.get(key)
        if state is None or state.age_ns is None or state.age_ns > self.settings.stale_after_ns:
            return None
        return state

    def is_dead(self, key: LinkKey) -> bool:
        """Return whether telemetry says that a link no longer carries traffic."""
        return self.views[key].dead

    def delay_ns(self, key: LinkKey, own: Own) -> int:
        """Return a link's delay, queue included; a relieved link's queue is gone for those who stay, not for comers."""
        view = self.views[key]
        return view.nominal_ns if self.relieved and key in self.relieved and key in own.links else view.delay_ns

    def used_bps(self, key: LinkKey) -> int:
        """Return a link's load, predicted moves included."""
        return max(0, self.views[key].load_bps)

    def available_bps(self, key: LinkKey, own: Own) -> int:
        """Return what a link offers a flow: what is free, and what the flow itself takes."""
        view = self.views[key]
        given_back = own.rate_bps if key in own.links else 0
        return max(0, min(view.rate_bps, view.rate_bps - max(0, view.load_bps) + given_back))

    def room_bps(self, key: LinkKey, own: Own) -> int:
        """Return what a link offers a flow when its headroom stays free."""
        return max(0, self.available_bps(key, own) - self.views[key].headroom_bps)

    def figures(self, path: Path, own: Own) -> PathFigures:
        """Return what a path is worth to a flow; a path within one switch has no delay and no limit."""
        links = links_of(path)
        return PathFigures(
            path,
            sum(self.delay_ns(key, own) for key in links),
            min((self.available_bps(key, own) for key in links), default=_UNLIMITED_BPS),
            min((self.room_bps(key, own) for key in links), default=_UNLIMITED_BPS),
            next((key for key in links if self.is_dead(key)), None),
        )

    def least_delay(self, src: str, dst: str, own: Own, floor_bps: int) -> Path | None:
        """Return the path of least measured delay over live links that have room and `floor_bps`; None if none.

        Fewer hops on ties.
        """

        def weight(tail: str, head: str, _: object) -> int | None:
            key = LinkKey(tail, head)
            if self.is_dead(key) or not self._takes(key, own, floor_bps):
                return None
            return self.delay_ns(key, own) * _HOP + 1

        try:
            return tuple(nx.dijkstra_path(self.network.graph, src, dst, weight))
        except nx.NetworkXNoPath:
            return None

    def least_possible_ns(self, src: str, dst: str) -> int | None:
        """Return the least delay of any path, room or not, before any predicted move; None if there is no path.

        One Dijkstra from each source serves all its flows: most of them are well where they are.
        """
        if src not in self._least_ns:

            def weight(tail: str, head: str, _: object) -> int:
                return self.views[LinkKey(tail, head)].delay_ns

            self._least_ns[src] = nx.single_source_dijkstra_path_length(self.network.graph, src, weight=weight)
        return self._least_ns[src].get(dst)

    def _takes(self, key: LinkKey, own: Own, floor_bps: int) -> bool:
        return self.room_bps(key, own) >= own.rate_bps and self.available_bps(key, own) >= floor_bps

    def widest_bps(self, src: str, dst: str, own: Own) -> int:
        """Return the greatest bottleneck of any live path (Dijkstra on maximal minima), 0 if there is no path."""
        seen: set[str] = set()
        queue = [(-_UNLIMITED_BPS, src)]
        while queue:
            width, name = heapq.heappop(queue)
            if name == dst:
                return -width
            if name in seen:
                continue
            seen.add(name)
            for head in self.network.graph.successors(name):
                key = LinkKey(name, head)
                if head not in seen and not self.is_dead(key):
                    heapq.heappush(queue, (max(width, -self.available_bps(key, own)), head))
        return 0

    def move(self, rate_bps: int, old: Path, new: Path) -> None:
        """Predict what a flow's move does to the loads of links, and which queues it lets drain."""
        left, entered = set(links_of(old)), set(links_of(new))
        for key in left - entered:
            view = self.views[key]
            view.load_bps -= rate_bps
            if self.used_bps(key) < self.settings.relieved_utilisation * view.rate_bps:
                self.relieved.add(key)
        for key in entered - left:
            self.views[key].load_bps += rate_bps

    def _view(self, key: LinkKey, link: DirectedLink, nominal_ns: int) -> _LinkView:
        state = self.fresh(key)
        return _LinkView(
            rate_bps=link.rate_bps,
            headroom_bps=round(link.rate_bps * self.settings.headroom),
            delay_ns=nominal_ns if state is None else state.delay_mean_ns,
            nominal_ns=nominal_ns,
            load_bps=0 if state is None else link.rate_bps - state.available_bps,
            dead=self._is_dead(state, self.states.get(key)),
        )

    def _is_dead(self, fresh: LinkState | None, known: LinkState | None) -> bool:
        silent_ns = None if known is None else known.age_ns
        if (
            silent_ns is not None
            and self.settings.dead_after_ns is not None
            and silent_ns > self.settings.dead_after_ns
        ):
            return True
        return fresh is not None and fresh.loss is not None and fresh.loss >= self.settings.dead_loss

    def _idle_excess_ns(self) -> dict[int, int]:
        """Return, by rate, the least that any measured link takes beside propagation."""
        found: dict[int, int] = {}
        for key, link in self.network.links.items():
            state = self.fresh(key)
            if state is not None:
                excess_ns = max(0, state.delay_mean_ns - link.delay_ns)
                found[link.rate_bps] = min(excess_ns, found.get(link.rate_bps, excess_ns))
        return found


def _nominal_ns(link: DirectedLink, idle_excess_ns: Mapping[int, int]) -> int:
    """Return the delay of a link without a queue: propagation, and what the measured links show on top of it."""
    scaled = (excess * max(rate_bps, link.rate_bps) // link.rate_bps for rate_bps, excess in idle_excess_ns.items())
    most_ns = _LONGEST_IDLE_BITS * 1_000_000_000 // link.rate_bps
    return link.delay_ns + min(min(scaled, default=0), most_ns)


_UNLIMITED_BPS = 1 << 62


@lru_cache(maxsize=65_536)
def links_of(path: Path) -> tuple[LinkKey, ...]:
    """Return the directed links between a path's switches."""
    return tuple(LinkKey(tail, head) for tail, head in pairwise(path))


def estimated_rate_bps(graph: StateGraph, path: Path, crossing: Mapping[LinkKey, int]) -> int:
    """Return a flow's share of the load on its path, 0 where nothing is known; `crossing` counts the flow too."""
    shares = [
        graph.used_bps(key) // crossing[key]
        for key in links_of(path)
        if graph.fresh(key) is not None and key in crossing
    ]
    return min(shares, default=0)


def crossings(paths: Iterable[Path]) -> dict[LinkKey, int]:
    """Return how many of these paths cross each link."""
    found: dict[LinkKey, int] = {}
    for path in paths:
        for key in links_of(path):
            found[key] = found.get(key, 0) + 1
    return found
