"""Traffic engineering round by round: measured demands in, weighted routes out, changed no more than need be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from collectors.values import FlowKey, Snapshot
from controller.base_paths import next_hops
from controller.errors import ControllerError, PathError
from controller.intents import WeightedRoute
from controller.paths.engineering.settings import EngineeringSettings
from controller.paths.engineering.splits import by_flows, ecmp
from controller.paths.engineering.values import Demands, FloatArray, IntArray, Splits, SwitchGraph
from controller.paths.engineering.weights import quantise, rounded
from controller.tables.weighted_routes import spreads_of
from dataplane.topology.values import LinkKey, Topology

_HOT = 0.9
"""A link is hot with this share of the busiest one's utilisation."""


@dataclass(frozen=True, slots=True)
class EngineeringRound:
    """What one round did: utilisation of the busiest link before and (as predicted) after, and why."""

    time_ns: int
    max_utilisation_before: float
    max_utilisation_after: float
    destinations: tuple[str, ...]
    reason: str


class TrafficEngineer:
    """Keeps weighted routes that suit the measured demands; `weighted` are those in force."""

    def __init__(
        self, topology: Topology, settings: EngineeringSettings, weighted: Sequence[WeightedRoute] = ()
    ) -> None:
        self.topology, self.settings = topology, settings
        self.weighted = tuple(weighted)
        self.failed_rounds = 0
        self.last_problem: str | None = None
        self.rounds: deque[EngineeringRound] = deque(maxlen=1000)
        self._base = {
            (name, destination): tuple(sorted(link.head.node for link in links))
            for destination, ways in next_hops(topology).items()
            for name, links in ways.items()
        }
        self._demands: dict[tuple[str, str], float] = {}
        self._last_ns: int | None = None
        self._dead: frozenset[LinkKey] = frozenset()

    def step(
        self,
        demands: Demands,
        dead: frozenset[LinkKey],
        now_ns: int,
        pinned_bps: Mapping[LinkKey, float] = MappingProxyType({}),
    ) -> EngineeringRound | None:
        """Take the newest demands; return what changed in `weighted`, None if nothing did.

        `pinned_bps` is what links carry beside, on paths that are not engineered.
        A round is due after each interval, and at once where the dead links are other ones than before. A round whose
        linear program is not solved is counted, and improves nothing.
        """
        broken = dead != self._dead
        if not broken and self._last_ns is not None and now_ns - self._last_ns < self.settings.interval_ns:
            return None
        self._last_ns, self._dead = now_ns, dead
        self._smooth(demands)
        graph = SwitchGraph.of(self.topology, dead)
        usual = ecmp(graph, graph.delay_ns)
        demand = _reachable(usual, graph.demand_matrix(self._demands))
        # Where links died or returned all routes are computed from nothing; else the present ones are the start.
        present = usual if broken else self._present(graph, usual)
        pinned = np.array([pinned_bps.get(link, 0.0) for link in graph.links])
        found = self._improved(graph, present, demand, pinned)
        before, after = (_busiest(splits, demand, pinned) for splits in (present, found))
        if before - after < self.settings.min_gain * before:
            found, after = present, before
        weighted = tuple(self._routes(found))
        if weighted == self.weighted:
            return None
        changed = tuple(sorted({route.destination for route in set(weighted) ^ set(self.weighted)}))
        self.weighted = weighted
        reason = _reason(dead, broken=broken, before=before, after=after)
        done = EngineeringRound(now_ns, before, after, changed, reason)
        self.rounds.append(done)
        return done

    def explain(self, path: Sequence[str]) -> str:
        """Return why traffic is on a path: the weights that it meets there, and what the last round said."""
        at = {route.switch: route.next_hops for route in self.weighted if route.destination == path[-1]}
        ways = (
            f"at {name} by {', '.join(f'{peer} ({weight})' for peer, weight in at[name])}"
            for name in path
            if name in at
        )
        spread = "; ".join(ways) or "by base routes all the way"
        last = f"; last round: {self.rounds[-1].reason}" if self.rounds else ""
        return f"traffic is engineered: to {path[-1]} {spread}{last}"

    def _smooth(self, demands: Demands) -> None:
        kept = self.settings.smoothing if self._demands else 0.0
        pairs = self._demands.keys() | demands.keys()
        mixed = {pair: kept * self._demands.get(pair, 0.0) + (1 - kept) * demands.get(pair, 0.0) for pair in pairs}
        self._demands = {pair: rate_bps for pair, rate_bps in mixed.items() if rate_bps >= 1.0}

    def _improved(self, graph: SwitchGraph, present: Splits, demand: FloatArray, pinned: FloatArray) -> Splits:
        """Return better splits, the present ones where the program is not solved."""
        try:
            return self._improve(graph, present, demand, pinned)
        except PathError as error:
            self.failed_rounds += 1
            self.last_problem = str(error)
            return present

    def _improve(self, graph: SwitchGraph, present: Splits, demand: FloatArray, pinned: FloatArray) -> Splits:
        """Return better splits for the destinations that load the busiest links most, the others as they are."""
        from controller.paths.engineering.program import solve  # noqa: PLC0415 - scipy takes long to import

        loads = {int(place): present.loads_towards(int(place), demand[:, place]) for place in _wanted(demand)}
        if not loads:
            return present
        total = np.sum(list(loads.values()), axis=0) + pinned
        utilisation = total / graph.rate_bps
        hot = utilisation >= _HOT * utilisation.max()
        ranked = sorted(loads, key=lambda place: (-float(loads[place][hot].sum()), place))
        chosen = ranked[: self.settings.max_destinations]
        fixed = total - np.sum([loads[place] for place in chosen], axis=0)
        found = solve(graph, demand, chosen, fixed_bps=np.maximum(fixed, 0.0), enough=self.settings.enough)
        return rounded(by_flows(graph, found.flows_bps, found.destinations, present))

    def _present(self, graph: SwitchGraph, usual: Splits) -> Splits:
        """Return the splits in force: weighted routes, else base routes."""
        shares = usual.shares.copy()
        number = {key: place for place, key in enumerate(graph.links)}
        if self._dead:
            self._take_base_routes(graph, number, shares)
        for route in self.weighted:
            destination, switch = graph.number[route.destination], graph.number[route.switch]
            total = sum(weight for _, weight in route.next_hops)
            shares[destination, graph.leaving[switch]] = 0.0
            for peer, weight in route.next_hops:
                shares[destination, number[LinkKey(route.switch, peer)]] = weight / total
        return Splits(graph, shares)

    def _take_base_routes(self, graph: SwitchGraph, number: Mapping[LinkKey, int], shares: FloatArray) -> None:
        """Put base routes in place of the shortest ways that are alive: who has no weights does not know of those."""
        for (switch, destination), peers in self._base.items():
            links = [number[key] for key in (LinkKey(switch, peer) for peer in peers) if key in number]
            if len(links) == len(peers):
                towards = graph.number[destination]
                shares[towards, graph.leaving[graph.number[switch]]] = 0.0
                shares[towards, links] = 1.0 / len(links)

    def _routes(self, splits: Splits) -> Iterator[WeightedRoute]:
        """Yield the routes that differ from the base routes, by switch and destination."""
        graph = splits.graph
        for switch, leaving in enumerate(graph.leaving):
            for destination in range(len(graph.switches)):
                shares = splits.shares[destination, leaving]
                if not shares.any():
                    continue
                weights = quantise(shares.tolist())
                used = [(graph.links[link].dst, w) for link, w in zip(leaving, weights, strict=True) if w]
                pair = graph.switches[switch], graph.switches[destination]
                even = len({weight for _, weight in used}) == 1
                if not (even and tuple(sorted(peer for peer, _ in used)) == self._base.get(pair)):
                    yield WeightedRoute(*pair, tuple(sorted(used)))


def demands_of(
    snapshot: Snapshot, topology: Topology, explicit_path: Callable[[FlowKey], Sequence[str] | None] = lambda _: None
) -> tuple[dict[tuple[str, str], float], dict[LinkKey, float]]:
    """Return what telemetry shows that hosts send each other, in bit/s by (source, destination) switch.

    What has an explicit path is no demand that could be split: it comes second, in bit/s by link. A flow whose rate is
    not known yet counts for nothing.
    """
    hosts = topology.host_by_address
    found: dict[tuple[str, str], float] = {}
    pinned: dict[LinkKey, float] = {}
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or not state.rate_bps:
            continue
        path = explicit_path(key)
        if path is None:
            pair = topology.attachment[src.name].node, topology.attachment[dst.name].node
            found[pair] = found.get(pair, 0.0) + state.rate_bps
        for link in map(LinkKey, path or (), (path or ())[1:]):
            pinned[link] = pinned.get(link, 0.0) + state.rate_bps
    return found, pinned


def possible(saved: tuple[WeightedRoute, ...], topology: Topology) -> tuple[WeightedRoute, ...]:
    """Return saved weighted routes, none where the topology no longer has all of them."""
    try:
        spreads_of(topology, next_hops(topology), saved)
    except ControllerError:
        return ()
    return saved


def _wanted(demand: FloatArray) -> IntArray:
    return np.flatnonzero(demand.sum(axis=0))


def _reachable(usual: Splits, demand: FloatArray) -> FloatArray:
    """Return the demands that have a way: those cut off by dead links cannot be helped."""
    graph, found = usual.graph, demand.copy()
    for switch, leaving in enumerate(graph.leaving):
        found[switch, ~usual.shares[:, leaving].any(axis=1)] = 0.0
    return found


def _busiest(splits: Splits, demand: FloatArray, pinned: FloatArray) -> float:
    return float(((splits.loads_bps(demand) + pinned) / splits.graph.rate_bps).max(initial=0.0))


def _reason(dead: frozenset[LinkKey], *, broken: bool, before: float, after: float) -> str:
    gain = f"the busiest link goes from {before:.1%} to {after:.1%}"
    if not broken:
        return gain
    names = ", ".join(sorted(map(str, dead)))
    return f"dead: {names}; {gain}" if dead else f"all links are back; {gain}"
