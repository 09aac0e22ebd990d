"""The cost map: costs between any two hosts now, or with more load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from collectors.values import FlowKey, LinkCondition, LinkState, PathState, Snapshot
from controller.cluster.cost_map.columns import ACCESS, AVAILABLE, DELAY, LOSS, LinkColumns
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.pairs import PairColumns, between_hosts, between_switches, refold_between
from controller.cluster.cost_map.routing import NO_ROUTES, Routing
from controller.cluster.cost_map.values import UNREACHABLE_NS, Basis, HostCost, HostLinkState, LinkUse, Load
from controller.network.intents import RouteSet
from dataplane.topology.values import LinkKey, Topology

DEFAULT_STALE_AFTER_NS: Final = 10_000_000_000
"""Older figures are ignored."""
_MOST_PATHS: Final = 64
_FEW_OF: Final = 8
"""Recompute everything if more than one link in this many has changed."""
_BASIS: Final = (Basis.NOMINAL, Basis.PARTLY_MEASURED, Basis.MEASURED)


@dataclass(frozen=True, eq=False)
class CostMap:
    """Costs between any two hosts at one moment. Immutable; maps derived from it share unchanged parts.

    `links` are the figures of all directed links, `between` those of [destination, switch]; `dead` are the links that
    base routes avoid. `host_links` are the hosts' own measurements of their links, by name, with ages as of `taken_ns`.
    `is_predicted` is true if unmeasured load was added. `flows` are those that telemetry sees.
    """

    routing: Routing
    links: LinkColumns
    between: PairColumns
    routes: RouteSet
    dead: frozenset[LinkKey]
    taken_ns: int
    stale_after_ns: int = DEFAULT_STALE_AFTER_NS
    host_links: Mapping[str, HostLinkState] = field(default_factory=dict)
    is_predicted: bool = False
    flows: Mapping[FlowKey, PathState] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        topology: Topology | CostModel,
        snapshot: Snapshot,
        routes: RouteSet = NO_ROUTES,
        *,
        stale_after_ns: int = DEFAULT_STALE_AFTER_NS,
        host_links: Iterable[HostLinkState] = (),
    ) -> CostMap:
        """Return the map of a fabric: packets follow `routes`, and base routes where there are none.

        Pass a `CostModel` to build several maps of one topology faster. Raises PathError for routes and host links
        that the topology does not allow.
        """
        model = topology if isinstance(topology, CostModel) else CostModel(topology)
        dead, own = _dead(snapshot), {state.host: state for state in host_links}
        routing = Routing.of(model, routes, dead)
        links = _links(model, snapshot, dead, own, stale_after_ns)
        between = between_switches(routing, links)
        return cls(routing, links, between, routes, dead, snapshot.taken_ns, stale_after_ns, own, flows=snapshot.paths)

    def changed(
        self, snapshot: Snapshot, routes: RouteSet | None = None, host_links: Iterable[HostLinkState] | None = None
    ) -> CostMap:
        """Return the map for a newer snapshot, with the same routes and host links unless others are given.

        Only what has changed is recomputed; load added before is dropped.
        """
        model, dead = self.model, _dead(snapshot)
        own = (
            self._aged_host_links(snapshot.taken_ns)
            if host_links is None
            else {state.host: state for state in host_links}
        )
        if (routes is None or routes is self.routes) and dead == self.dead:
            links = _links(model, snapshot, dead, own, self.stale_after_ns)
            costs = replace(self._with(links), taken_ns=snapshot.taken_ns, host_links=own, is_predicted=False)
            return replace(costs, flows=snapshot.paths)
        return CostMap.of(
            model,
            snapshot,
            self.routes if routes is None else routes,
            stale_after_ns=self.stale_after_ns,
            host_links=own.values(),
        )

    def with_host_links(self, states: Iterable[HostLinkState]) -> CostMap:
        """Return the map updated with some hosts' fresh measurements of their own links.

        Raises PathError for an unknown host.
        """
        own = {state.host: state for state in states}
        links = self.links.with_hosts(_rows(self.model, own), self.stale_after_ns)
        return replace(self._with(links), host_links={**self.host_links, **own})

    def with_links(self, states: Iterable[LinkState]) -> CostMap:
        """Return the map updated with fresh figures of some links."""
        return self._with(self.links.observed({state.link: state for state in states}, self.dead, self.stale_after_ns))

    def with_load(self, src: str, dst: str, rate_bps: int) -> CostMap:
        """Return the predicted map with another flow from `src` to `dst`; see `with_loads`."""
        return self.with_loads((Load(src, dst, rate_bps),))

    def with_loads(self, loads: Iterable[Load]) -> CostMap:
        """Return the predicted map with more traffic, spread over paths like new flows.

        Delays grow up to that of a full queue, and load above a link's rate is lost. Raises PathError for an unknown
        host, ValueError for a negative rate.
        """
        added = np.zeros(len(self.links.rate_bps), np.float64)
        for load in loads:
            if load.rate_bps < 0:
                raise ValueError(f"load {load.src} to {load.dst}: {load.rate_bps} bit/s")
            src, dst = self.model.number(load.src), self.model.number(load.dst)
            if src == dst:
                continue
            for row, share in self.routing.shares(src, dst).items():
                added[row] += share * load.rate_bps
            added[self.model.up.start + src] += load.rate_bps
            added[self.model.down.start + dst] += load.rate_bps
        return replace(self._with(self.links.loaded(np.rint(added).astype(np.int64))), is_predicted=True)

    def with_reservations(self, loads: Iterable[Load]) -> CostMap:
        """Return the map with these rates reserved for others, on every link that the hash may select.

        A flow takes one of several paths, and which one is unknown: free bandwidth is what is left in the worst case,
        while delays are those of the expected loads. Unknown hosts are ignored.
        """
        most, expected = np.zeros((2, len(self.links.rate_bps)), np.float64)
        for load in loads:
            src, dst = self.model.host_number.get(load.src), self.model.host_number.get(load.dst)
            if src is None or dst is None or src == dst:
                continue
            for row, share in self.routing.shares(src, dst).items():
                expected[row] += share * load.rate_bps
                most[row] += load.rate_bps
            for row in (self.model.up.start + src, self.model.down.start + dst):
                expected[row] += load.rate_bps
                most[row] += load.rate_bps
        links = self.links.loaded(np.rint(expected).astype(np.int64))
        links = replace(links, load_bps=self.links.load_bps + np.rint(most).astype(np.int64))
        return replace(self._with(links), is_predicted=True)

    def received(self, host: str) -> LinkUse:
        """Return the use of the link to a host by its traffic; raise PathError for an unknown host."""
        row = self.model.down.start + self.model.number(host)
        is_measured = bool(self.links.measured[row] & AVAILABLE)
        age_ns = int(self.links.age_ns[row]) if is_measured else None
        return LinkUse(int(self.links.rate_bps[row]), int(self.links.load_bps[row]), age_ns)

    def sent_bps(self, src: str, dst: str) -> int:
        """Return the rate of flows from one host to another, as recently measured by telemetry."""
        return self._sent_bps.get((src, dst), 0)

    @cached_property
    def _sent_bps(self) -> dict[tuple[str, str], int]:
        names: dict[object, str] = {}
        for host in self.model.topology.hosts:
            names[host.ipv4] = host.name
            if host.ipv6 is not None:
                names[host.ipv6] = host.name
        rates_bps: dict[tuple[str, str], int] = {}
        for flow, path in self.flows.items():
            ends = names.get(flow.src), names.get(flow.dst)
            if path.rate_bps is None or path.age_ns > self.stale_after_ns or ends[0] is None or ends[1] is None:
                continue
            rates_bps[ends[0], ends[1]] = rates_bps.get((ends[0], ends[1]), 0) + path.rate_bps
        return rates_bps

    @property
    def model(self) -> CostModel:
        """The topology and the data derived from it."""
        return self.routing.model

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host names, in the order of rows and columns."""
        return self.model.hosts

    def cost(self, src: str, dst: str) -> HostCost:
        """Return the costs between two hosts; raise PathError for an unknown one."""
        row, column = self.model.number(src), self.model.number(dst)
        figures = self._row(row)
        delay_ns, age_ns = int(figures.delay_ns[0, column]), int(figures.age_ns[0, column])
        measured = int(figures.measured[0, column])
        return HostCost(
            src=src,
            dst=dst,
            delay_ns=delay_ns,
            available_bps=int(figures.available_bps[0, column]),
            loss_ppb=int(figures.loss_ppb[0, column]),
            age_ns=None if age_ns < 0 else age_ns,
            delay_basis=_basis(measured, DELAY),
            available_basis=_basis(measured, AVAILABLE),
            loss_basis=_basis(measured, LOSS),
            paths=self.routing.paths(row, column, _MOST_PATHS) if delay_ns != UNREACHABLE_NS else (),
            explicit=(row, column) in self.routing.own_paths,
            access_measured=bool(measured & ACCESS),
        )

    @cached_property
    def pairs(self) -> PairColumns:
        """The figures of all pairs as arrays [source, destination], computed on first use.

        Integers: `delay_ns` -1 if unreachable, `available_bps`, `loss_ppb`, `age_ns` -1 if nothing was measured;
        `measured` has a bit for each figure. Read-only.
        """
        return between_hosts(self.routing, self.links, self.between, range(len(self.hosts))).sealed()

    @cached_property
    def _row(self) -> Callable[[int], PairColumns]:
        """Return the figures from one source to all hosts; those of the last source are cached."""
        return lru_cache(maxsize=1)(
            lambda row: between_hosts(self.routing, self.links, self.between, range(row, row + 1))
        )

    def _aged_host_links(self, taken_ns: int) -> dict[str, HostLinkState]:
        """Return the hosts' measurements with their ages at a later time."""
        more_ns = max(0, taken_ns - self.taken_ns)
        return {name: replace(state, age_ns=state.age_ns + more_ns) for name, state in self.host_links.items()}

    def _with(self, links: LinkColumns) -> CostMap:
        """Return the map with other link figures over the same routes."""
        rows = links.differing(self.links)
        inner = rows[rows < self.model.inner.stop]
        between = self.between
        if len(inner) > len(self.model.table.links) // _FEW_OF:
            between = between_switches(self.routing, links)
        elif len(inner):
            between = between.copy()
            refold_between(self.routing, links, between, inner)
        return replace(self, links=links, between=between)


def _links(
    model: CostModel,
    snapshot: Snapshot,
    dead: frozenset[LinkKey],
    own: Mapping[str, HostLinkState],
    stale_after_ns: int,
) -> LinkColumns:
    """Return the measurements of links by switches, and by hosts of their own."""
    links = model.nominal.observed(snapshot.links, dead, stale_after_ns)
    return links.with_hosts(_rows(model, own), stale_after_ns)


def _rows(model: CostModel, own: Mapping[str, HostLinkState]) -> dict[int, HostLinkState]:
    return {model.up.start + model.number(name): state for name, state in own.items()}


def _dead(snapshot: Snapshot) -> frozenset[LinkKey]:
    return frozenset(key for key, status in snapshot.statuses.items() if status.condition is LinkCondition.DOWN)


def _basis(measured: int, figure: int) -> Basis:
    return _BASIS[bool(measured & (figure << 3)) + bool(measured & figure and measured & (figure << 3))]
