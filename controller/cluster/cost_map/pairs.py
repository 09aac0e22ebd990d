"""Costs of pairs as columns: from each switch to each destination, and from host to host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.cluster.cost_map.columns import Bytes, LinkColumns, Longs
from controller.cluster.cost_map.kernels.compiled import compiled
from controller.cluster.cost_map.kernels.fold import expand, fold, overlay, refold
from controller.cluster.cost_map.kernels.structures import Figures, Hosts
from controller.cluster.cost_map.routing import Routing
from controller.network.algorithms.link_table import Ids
from dataplane.native import pointer_to

_NAMES: Final = ("delay_ns", "available_bps", "loss_ppb", "age_ns", "measured")


@dataclass(frozen=True, slots=True, eq=False)
class PairColumns:
    """Figures of pairs as arrays of one shape; for meanings see `HostCost`, for `measured` see `kernels.structures`."""

    delay_ns: Longs
    available_bps: Longs
    loss_ppb: Longs
    age_ns: Longs
    measured: Bytes

    @classmethod
    def empty(cls, *shape: int) -> PairColumns:
        """Return uninitialised arrays."""
        return cls(*(np.empty(shape, np.uint8 if name == "measured" else np.int64) for name in _NAMES))

    def copy(self) -> PairColumns:
        """Return a copy."""
        return PairColumns(*(getattr(self, name).copy() for name in _NAMES))

    def sealed(self) -> PairColumns:
        """Return the same arrays, made read-only."""
        arrays = [getattr(self, name).view() for name in _NAMES]
        for array in arrays:
            array.flags.writeable = False
        return PairColumns(*arrays)

    def native(self) -> Figures:
        """Return the arrays in the kernels' form."""
        return Figures(**{name: pointer_to(getattr(self, name)) for name in _NAMES})


def between_switches(routing: Routing, links: LinkColumns) -> PairColumns:
    """Return the costs of [destination, switch]."""
    model = routing.model
    costs = PairColumns.empty(len(model.destinations), len(model.table.switches))
    _fold(routing, links, costs, range(len(model.destinations)))
    return costs


def refold_between(routing: Routing, links: LinkColumns, costs: PairColumns, rows: Longs) -> None:
    """Update the costs that depend on the changed links between switches."""
    graph, figures, native = routing.model.graph, _figures(links, routing.model.inner), costs.native()
    switches, changed = len(routing.model.table.switches), np.ascontiguousarray(rows, np.uint32)
    reached, queue = np.zeros(switches, np.uint8), np.zeros(switches, np.uint32)
    tables = (pointer_to(table) for table in (routing.weights, routing.order, routing.counts))
    scratch = pointer_to(reached), pointer_to(queue)
    run = compiled(refold)
    run(graph, *tables, len(routing.counts), pointer_to(changed), len(changed), *scratch, figures, native)


def _fold(routing: Routing, links: LinkColumns, costs: PairColumns, destinations: Iterable[int]) -> None:
    graph, figures, native = routing.model.graph, _figures(links, routing.model.inner), costs.native()
    run, switches = compiled(fold), len(routing.model.table.switches)
    for index in destinations:
        weights, order = pointer_to(routing.weights[index]), pointer_to(routing.order[index])
        run(graph, weights, order, int(routing.counts[index]), figures, native, index * switches)


def between_hosts(routing: Routing, links: LinkColumns, between: PairColumns, sources: range) -> PairColumns:
    """Return the costs of [source, destination] from those between switches; `sources` is contiguous."""
    model = routing.model
    costs = PairColumns.empty(len(sources), len(model.hosts))
    hosts = Hosts(
        hosts=len(model.hosts),
        switches=len(model.table.switches),
        switch=pointer_to(model.host_switch),
        destination=pointer_to(model.host_destination),
        up=_figures(links, model.up),
        down=_figures(links, model.down),
    )
    native = costs.native()
    compiled(expand)(hosts, between.native(), native, sources.start, sources.stop)
    own = {pair: rows for pair, rows in routing.own_paths.items() if pair[0] in sources}
    if own:
        _overlay(own, _figures(links, model.inner), hosts, native, sources.start)
    return costs


def _overlay(
    own_paths: Mapping[tuple[int, int], Ids], links: Figures, hosts: Hosts, costs: Figures, first: int
) -> None:
    """Overwrite the costs of pairs that have a path of their own."""
    pairs, rows = np.array(list(own_paths), np.uint32), list(own_paths.values())
    start = np.zeros(len(rows) + 1, np.uint32)
    np.cumsum([len(path) for path in rows], out=start[1:])
    pool = np.concatenate([*rows, np.zeros(1, np.uint32)]).astype(np.uint32)
    columns = (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]), start, pool)
    scratch = PairColumns.empty(1).native()
    compiled(overlay)(hosts, links, len(rows), *map(pointer_to, columns), scratch, costs, first)


def _figures(links: LinkColumns, rows: slice) -> Figures:
    """Return the figures of some links in the kernels' form."""
    columns = {name: pointer_to(np.ascontiguousarray(getattr(links, name)[rows])) for name in _NAMES}
    return Figures(**columns)
