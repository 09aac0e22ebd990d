"""Data of traffic engineering: switches and links as arrays, demands, and splits of traffic.

Traffic is routed by destination switch, as in the tables: each switch splits all traffic for one destination over its
links by fixed shares, whatever its source. That loses nothing: a flow of many commodities with one destination can be
merged into one without changing the load of any link.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from controller.common.errors import PathError
from dataplane.topology.values import LinkKey, Topology

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Demands = Mapping[tuple[str, str], float]
"""bit/s by (source switch, destination switch)."""


@dataclass(frozen=True)
class SwitchGraph:
    """Switches and the directed links between them; arrays are by link, in the topology's order."""

    switches: tuple[str, ...]
    links: tuple[LinkKey, ...]
    tails: IntArray
    heads: IntArray
    rate_bps: FloatArray
    delay_ns: FloatArray

    @classmethod
    def of(cls, topology: Topology, without: frozenset[LinkKey] = frozenset()) -> SwitchGraph:
        """Return a topology's graph of switches, links that are `without` left out."""
        switches = tuple(node.name for node in topology.switches)
        number = {name: index for index, name in enumerate(switches)}
        kept = [
            link
            for key, link in topology.directed_links.items()
            if key.src in number and key.dst in number and key not in without
        ]
        return cls(
            switches,
            tuple(link.key for link in kept),
            np.array([number[link.tail.node] for link in kept], dtype=np.int64),
            np.array([number[link.head.node] for link in kept], dtype=np.int64),
            np.array([link.rate_bps for link in kept], dtype=np.float64),
            np.array([link.delay_ns for link in kept], dtype=np.float64),
        )

    @cached_property
    def number(self) -> dict[str, int]:
        """Each switch's position."""
        return {name: index for index, name in enumerate(self.switches)}

    @cached_property
    def leaving(self) -> tuple[IntArray, ...]:
        """The links that leave each switch."""
        return tuple(np.flatnonzero(self.tails == switch) for switch in range(len(self.switches)))

    @cached_property
    def leaving_padded(self) -> IntArray:
        """The links that leave each switch as rows of one length, filled up with the number of links."""
        width = max(map(len, self.leaving), default=0)
        table: IntArray = np.full((len(self.switches), width), len(self.links), dtype=np.int64)
        for row, links in zip(table, self.leaving, strict=True):
            row[: len(links)] = links
        return table

    @cached_property
    def link_between(self) -> IntArray:
        """The link from one switch to another, by (tail, head); -1 where there is none."""
        table: IntArray = np.full((len(self.switches), len(self.switches)), -1, dtype=np.int64)
        table[self.tails, self.heads] = np.arange(len(self.links))
        return table

    def demand_matrix(self, demands: Demands) -> FloatArray:
        """Return bit/s by (source, destination); raise PathError for a switch that is not here or a negative demand."""
        matrix = np.zeros((len(self.switches), len(self.switches)))
        for (src, dst), rate_bps in demands.items():
            if src not in self.number or dst not in self.number:
                raise PathError(f"demand {src}->{dst}: one of the two is not a switch of the topology")
            if not 0 <= rate_bps < np.inf:
                raise PathError(f"demand {src}->{dst}: {rate_bps} bit/s is not a valid rate")
            if src != dst:
                matrix[self.number[src], self.number[dst]] += rate_bps
        return matrix


@dataclass(frozen=True)
class Splits:
    """Split of traffic: `shares[destination, link]` is a link's share of its tail's traffic for a destination.

    At each switch that can reach a destination the shares of its links add up to 1, at others and at the destination
    itself to 0. The links with a share never form a cycle.
    """

    graph: SwitchGraph
    shares: FloatArray

    def loads_bps(self, demand: FloatArray) -> FloatArray:
        """Return the load of each link; raise PathError if a demand has no way to its destination."""
        wanted = np.flatnonzero(demand.sum(axis=0))
        return np.asarray(self.loads_by_destination(wanted, demand[:, wanted].T).sum(axis=0))

    def loads_by_destination(self, destinations: IntArray, entering_bps: FloatArray) -> FloatArray:
        """Return the loads of all links by destination, given the traffic that enters at each switch for each of them.

        `entering_bps[k, switch]` goes to `destinations[k]`, as does row k of the result. All destinations are followed
        at once, level by level; `loads_towards` is the readable twin. Raises PathError if traffic has no route, or for
        a cycle.
        """
        graph, size = self.graph, len(self.graph.switches)
        passing = entering_bps.astype(np.float64)
        # Traffic that enters at its own destination crosses no link.
        passing[np.arange(len(destinations)), destinations] = 0.0
        # Each pair of a destination and a switch is a vertex of one large graph without cycles.
        flat = passing.reshape(-1)
        row, link = np.nonzero(self.shares[destinations] > 0)
        tail, head = row * size + graph.tails[link], row * size + graph.heads[link]
        share, loads = self.shares[destinations[row], link], np.zeros((len(destinations), len(graph.links)))
        by_tail = np.argsort(tail, kind="stable")
        starts = np.searchsorted(tail[by_tail], np.arange(len(flat) + 1))
        waiting = np.bincount(head, minlength=len(flat))
        ready, done = np.flatnonzero(waiting == 0), 0
        while len(ready):
            done += len(ready)
            used = by_tail[_ranges(starts[ready], starts[ready + 1])]
            carried = flat[tail[used]] * share[used]
            loads[row[used], link[used]] = carried
            # `flat[head] += carried` would count a head that appears twice only once.
            np.add.at(flat, head[used], carried)
            np.subtract.at(waiting, head[used], 1)
            reached = np.unique(head[used])
            ready = reached[waiting[reached] == 0]
        if done != len(flat):
            stuck = int(np.flatnonzero(waiting > 0)[0]) // size
            raise PathError(f"the splits towards {graph.switches[destinations[stuck]]} form a cycle")
        self._check_arrival(destinations, passing, starts)
        return loads

    def _check_arrival(self, destinations: IntArray, passing: FloatArray, starts: IntArray) -> None:
        """Raise PathError for traffic that ends at a switch which is not its destination."""
        ends = (np.diff(starts) == 0).reshape(passing.shape) & (passing > 0)
        ends[np.arange(len(destinations)), destinations] = False
        for row, switch in np.argwhere(ends):
            names = self.graph.switches
            raise PathError(f"there is no path from {names[switch]} to {names[destinations[row]]}")

    def loads_towards(self, destination: int, demand_bps: FloatArray) -> FloatArray:
        """Return the load of each link by traffic for one destination, given the traffic that enters at each switch.

        Raises PathError for traffic without a route.
        """
        graph, shares = self.graph, self.shares[destination]
        passing = demand_bps.astype(np.float64).copy()
        passing[destination] = 0.0
        loads = np.zeros(len(graph.links))
        for switch in self.order(destination):
            leaving = graph.leaving[switch]
            loads[leaving] = passing[switch] * shares[leaving]
            np.add.at(passing, graph.heads[leaving], loads[leaving])
            if switch != destination and passing[switch] > 0 and not shares[leaving].any():
                src, dst = graph.switches[switch], graph.switches[destination]
                raise PathError(f"there is no path from {src} to {dst}")
        return loads

    def order(self, destination: int) -> list[int]:
        """Return all switches so that traffic for a destination only goes to later ones; PathError for a cycle."""
        graph = self.graph
        used = np.flatnonzero(self.shares[destination] > 0)
        waiting = np.bincount(graph.heads[used], minlength=len(graph.switches))
        ready = [int(switch) for switch in np.flatnonzero(waiting == 0)]
        ordered: list[int] = []
        while ready:
            switch = ready.pop()
            ordered.append(switch)
            for link in graph.leaving[switch]:
                if self.shares[destination, link] > 0:
                    head = int(graph.heads[link])
                    waiting[head] -= 1
                    if waiting[head] == 0:
                        ready.append(head)
        if len(ordered) != len(graph.switches):
            raise PathError(f"the splits towards {graph.switches[destination]} form a cycle")
        return ordered


def _ranges(starts: IntArray, ends: IntArray) -> IntArray:
    """Return all numbers from each start up to its end, one range after the other."""
    lengths = ends - starts
    before = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.asarray(np.repeat(starts, lengths) + np.arange(int(lengths.sum())) - before)
