"""Routing: how switches spread each destination's packets, and the host pairs with a path of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

import numpy as np

from controller.cluster.cost_map.kernels.compiled import compiled
from controller.cluster.cost_map.kernels.fold import sort_switches
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.values import PathShare
from controller.common.errors import PathError
from controller.network.algorithms.link_table import Ids
from controller.network.intents import RouteSet, WeightedRoute
from dataplane.native import pointer_to
from dataplane.topology.values import LinkKey

NO_ROUTES = RouteSet(0, ())
"""No explicit routes: base routes apply."""


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """Routing of the packets of a model's hosts.

    `weights` are [destination, link], 0 for unused links. `order` has for each destination itself, then the other
    switches, each after all those that it sends to, `counts` of them; those in a loop are left out. `own_paths` are by
    (source, destination) index: the rows of the path that all traffic of the pair follows.
    """

    model: CostModel
    weights: Ids
    order: Ids
    counts: Ids
    own_paths: Mapping[tuple[int, int], Ids]

    @classmethod
    def of(cls, model: CostModel, routes: RouteSet, dead: Set[LinkKey]) -> Routing:
        """Combine explicit and weighted routes, with base routes around dead and drained links for the rest.

        Routes of single 5-tuples are ignored: future traffic takes none of them. If routes of different times form a
        loop, nothing arrives. Raise PathError for routes that the topology does not allow.
        """
        weights = model.base_weights(frozenset(dead), frozenset(routes.drained))
        if routes.weighted:
            weights = weights.copy()
            for route in routes.weighted:
                _spread(model, weights, route)
        order = np.zeros((len(model.destinations), len(model.table.switches)), np.uint32)
        counts = _sort(model, weights, order)
        return cls(model, weights, order, counts, _own_paths(model, routes))

    def paths(self, src: int, dst: int, most: int) -> tuple[PathShare, ...]:
        """Return at most `most` paths of a pair of hosts by index, the largest share first."""
        model = self.model
        own = self.own_paths.get((src, dst))
        start, target = int(model.host_switch[src]), int(model.host_destination[dst])
        if own is not None:
            return (PathShare(model.table.path(start, own), 1.0),)
        shares = [PathShare(model.table.path(start, rows), share) for rows, share in self._spread(start, target, most)]
        return tuple(sorted(shares, key=lambda path: -path.share))

    def shares(self, src: int, dst: int) -> dict[int, float]:
        """Return the links between switches that a pair's traffic crosses, each with the share that it carries."""
        own = self.own_paths.get((src, dst))
        if own is not None:
            return {int(row): 1.0 for row in own}
        model, target = self.model, int(self.model.host_destination[dst])
        arriving = {int(model.host_switch[src]): 1.0}
        carried: dict[int, float] = {}
        # The order begins at the destination; follow the traffic from its sources.
        for switch in self.order[target, : self.counts[target]][::-1].tolist():
            share = arriving.pop(switch, 0.0)
            for row, part in self._onward(switch, target) if share else ():
                carried[row] = share * part
                head = int(model.table.head[row])
                arriving[head] = arriving.get(head, 0.0) + share * part
        return carried

    def _spread(self, switch: int, target: int, most: int) -> Iterator[tuple[tuple[int, ...], float]]:
        """Yield paths from a switch as rows, with their shares; equal weights in order of ports."""
        if switch == int(self.model.destinations[target]):
            yield (), 1.0
            return
        left = most
        for row, part in sorted(self._onward(switch, target), key=lambda pair: -pair[1]):
            for rest, share in self._spread(int(self.model.table.head[row]), target, left):
                yield (row, *rest), part * share
                left -= 1
                if left == 0:
                    return

    def _onward(self, switch: int, target: int) -> list[tuple[int, float]]:
        rows = self.model.table.leaving(switch)
        weights = self.weights[target, rows.start : rows.stop].tolist()
        total = sum(weights)
        return [(row, weight / total) for row, weight in zip(rows, weights, strict=True) if weight]


def _spread(model: CostModel, weights: Ids, route: WeightedRoute) -> None:
    """Write a weighted route into its destination's weights; ignored if the destination has no hosts."""
    number = model.table.switch_number
    if route.switch not in number or route.destination not in number:
        raise PathError(f"weighted route at {route.switch} to {route.destination}: no such switch")
    target = model.destination_number.get(number[route.destination])
    if target is None:
        return
    leaving, own = model.table.leaving(number[route.switch]), weights[target]
    own[leaving.start : leaving.stop] = 0
    for name, weight in route.next_hops:
        row = model.row_between.get((route.switch, name))
        if row is None:
            raise PathError(f"there is no link {route.switch}->{name}")
        own[row] = weight


def _sort(model: CostModel, weights: Ids, order: Ids) -> Ids:
    """Write each destination's order of switches, and return how many there are."""
    left = np.zeros(len(model.table.switches), np.uint32)
    sort_compiled = compiled(sort_switches)
    counts = np.zeros(len(model.destinations), np.uint32)
    for index, switch in enumerate(model.destinations.tolist()):
        counts[index] = sort_compiled(
            model.graph, pointer_to(weights[index]), switch, pointer_to(left), pointer_to(order[index])
        )
    return counts


def _own_paths(model: CostModel, routes: RouteSet) -> dict[tuple[int, int], Ids]:
    paths: dict[tuple[int, int], Ids] = {}
    for route in routes.routes:
        flow = route.flow
        if flow.protocol is not None:
            continue
        pair = model.number(flow.src_host), model.number(flow.dst_host)
        ends = tuple(model.table.switches[model.host_switch[host]] for host in pair)
        if (route.switches[0], route.switches[-1]) != ends:
            raise PathError(f"route {flow.src_host} to {flow.dst_host}: does not lead from {ends[0]} to {ends[1]}")
        paths[pair] = model.table.rows(route.switches)
    return paths
