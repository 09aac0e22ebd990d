"""The splits that the switches hold: base routes, and weighted routes where those differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from controller.network.base_paths import NextHops
from controller.network.intents import WeightedRoute
from controller.network.paths.engineering.values import FloatArray, IntArray, Splits, SwitchGraph
from controller.network.paths.engineering.weights import quantise_rows
from dataplane.topology.values import LinkKey, Topology

_SAME = 1e-9


class InForce:
    """Splits over all links of a topology, dead ones too, and the weighted routes that make them."""

    def __init__(self, topology: Topology, base: NextHops, weighted: Iterable[WeightedRoute]) -> None:
        self._graph = SwitchGraph.of(topology)
        self._row = {key: row for row, key in enumerate(self._graph.links)}
        self._base = np.zeros((len(self._graph.switches), len(self._graph.links)))
        for destination, ways in base.items():
            for links in ways.values():
                rows = [self._row[link.key] for link in links]
                self._base[self._graph.number[destination], rows] = 1.0 / len(rows)
        self._shares = self._base.copy()
        self._take(weighted)

    def uses(self, links: Iterable[LinkKey]) -> IntArray:
        """Return the destinations for which some switch has traffic over one of the links."""
        rows = [self._row[key] for key in links if key in self._row]
        return np.flatnonzero((self._shares[:, rows] > 0).any(axis=1))

    def over(self, graph: SwitchGraph) -> FloatArray:
        """Return the shares of a graph's links, which are some of the topology's."""
        return self._shares[:, self._rows(graph)]

    def replace(self, splits: Splits) -> tuple[WeightedRoute, ...]:
        """Apply splits; return the weighted routes for them, by switch and destination.

        A switch that has no share for a destination keeps its base route.
        """
        graph = self._graph
        shares = np.zeros_like(self._base)
        shares[:, self._rows(splits.graph)] = splits.shares
        padded = np.concatenate([shares, np.zeros((len(shares), 1))], axis=1)
        differs = np.zeros((len(graph.switches), len(graph.switches)), dtype=bool)
        destination, link = np.nonzero(np.abs(shares - self._base) > _SAME)
        differs[destination, graph.tails[link]] = True
        differs &= (padded[:, graph.leaving_padded] > 0).any(axis=2)
        self._shares = np.where(differs[:, graph.tails], shares, self._base)
        return tuple(self._weighted(padded, differs))

    def _weighted(self, padded: FloatArray, differs: FloatArray) -> Iterator[WeightedRoute]:
        graph = self._graph
        switches, destinations = np.nonzero(differs.T)
        links = graph.leaving_padded[switches]
        shares = padded[destinations[:, None], links]
        names, peers = graph.switches, [key.dst for key in graph.links]
        # Most switches have one next hop: those share its tuple.
        alone = [((peer, 1),) for peer in peers]
        hops: list[tuple[tuple[str, int], ...]] = [
            alone[link] for link in links[np.arange(len(links)), shares.argmax(axis=1)].tolist()
        ]
        several = np.flatnonzero(np.count_nonzero(shares > 0, axis=1) > 1)
        weights = quantise_rows(shares[several])
        weights //= np.gcd.reduce(weights, axis=1, keepdims=True)
        for index, row, each in zip(several.tolist(), links[several].tolist(), weights.tolist(), strict=True):
            used = [(peers[link], weight) for link, weight in zip(row, each, strict=True) if weight]
            hops[index] = tuple(sorted(used))
        for switch, destination, each_hops in zip(switches.tolist(), destinations.tolist(), hops, strict=True):
            yield WeightedRoute(names[switch], names[destination], each_hops)

    def _take(self, weighted: Iterable[WeightedRoute]) -> None:
        graph = self._graph
        for route in weighted:
            destination, switch = graph.number[route.destination], graph.number[route.switch]
            total = sum(weight for _, weight in route.next_hops)
            self._shares[destination, graph.leaving[switch]] = 0.0
            for peer, weight in route.next_hops:
                self._shares[destination, self._row[LinkKey(route.switch, peer)]] = weight / total

    def _rows(self, graph: SwitchGraph) -> IntArray:
        return np.array([self._row[key] for key in graph.links], dtype=np.int64)
