"""The cost map: what packets between any two hosts meet now, or would meet with more load."""

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
"""A figure older than this is not believed."""
_MOST_PATHS: Final = 64
_FEW_OF: Final = 8
"""Where more than one link in so many has changed, all is computed anew."""
_BASIS: Final = (Basis.NOMINAL, Basis.PARTLY_MEASURED, Basis.MEASURED)


@dataclass(frozen=True, eq=False)
class CostMap:
    """What lies between any two hosts at one moment. It never changes; maps made from it share what stays the same.

    `links` are the figures of all directed links, `between` those of [destination, switch]; `dead` are
    the links that base routes avoid. `host_links` are what hosts measured of their own links, by name, ages as of
    `taken_ns`. `is_predicted` says that load was added which nobody has measured. `flows` are those that telemetry
    sees.
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
        """Return the map of a fabric: packets follow `routes`, and base routes where these say nothing.

        Who makes several maps of one topology saves time by giving its `CostModel`. Raises PathError for routes, and
        for links of hosts, that the topology cannot have.
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
        """Return the map by a newer snapshot, over the same routes and links of hosts unless others are given.

        Only what has changed is computed again; load that was added before is no part of it.
        """
        model, dead = self.model, _dead(snapshot)
        own = self._own_later(snapshot.taken_ns) if host_links is None else {state.host: state for state in host_links}
        if (routes is None or routes is self.routes) and dead == self.dead:
            links = _links(model, snapshot, dead, own, self.stale_after_ns)
            made = replace(self._with(links), taken_ns=snapshot.taken_ns, host_links=own, is_predicted=False)
            return replace(made, flows=snapshot.paths)
        return CostMap.of(
            model,
            snapshot,
            self.routes if routes is None else routes,
            stale_after_ns=self.stale_after_ns,
            host_links=own.values(),
        )

    def with_host_links(self, states: Iterable[HostLinkState]) -> CostMap:
        """Return the map with what some hosts measured of their own links; stale ones are left out.

        Raises PathError for a host that is not there.
        """
        own = {state.host: state for state in states}
        links = self.links.with_hosts(_rows(self.model, own), self.stale_after_ns)
        return replace(self._with(links), host_links={**self.host_links, **own})

    def with_links(self, states: Iterable[LinkState]) -> CostMap:
        """Return the map with new figures of some links, the others as they are; stale ones are left out."""
        return self._with(self.links.observed({state.link: state for state in states}, self.dead, self.stale_after_ns))

    def with_load(self, src: str, dst: str, rate_bps: int) -> CostMap:
        """Return what the map would be with another flow from `src` to `dst`; see `with_loads`."""
        return self.with_loads((Load(src, dst, rate_bps),))

    def with_loads(self, loads: Iterable[Load]) -> CostMap:
        """Return what the map would be with more traffic, spread over paths as new flows are.

        Delays grow as queues would, up to that of a full one, and what exceeds a link's rate is lost. Raises PathError
        for a host that is not there, ValueError for a negative rate.
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
        """Return the map in which these rates are kept free for others, on every link that the hash may put them on.

        A flow takes one of several paths, and which is not known: so free bandwidth is what is left wherever it goes,
        while delays are those of the loads that are to be expected. Hosts that are not there have no reservation.
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
        """Return how much of the link from its switch a host's traffic uses; raise PathError for an unknown host."""
        row = self.model.down.start + self.model.number(host)
        is_measured = bool(self.links.measured[row] & AVAILABLE)
        age_ns = int(self.links.age_ns[row]) if is_measured else None
        return LinkUse(int(self.links.rate_bps[row]), int(self.links.load_bps[row]), age_ns)

    def sent_bps(self, src: str, dst: str) -> int:
        """Return what flows from one host to another send, as far as telemetry has measured it lately."""
        return self._sent_bps.get((src, dst), 0)

    @cached_property
    def _sent_bps(self) -> dict[tuple[str, str], int]:
        names: dict[object, str] = {}
        for host in self.model.topology.hosts:
            names[host.ipv4] = host.name
            if host.ipv6 is not None:
                names[host.ipv6] = host.name
        found: dict[tuple[str, str], int] = {}
        for flow, path in self.flows.items():
            ends = names.get(flow.src), names.get(flow.dst)
            if path.rate_bps is None or path.age_ns > self.stale_after_ns or ends[0] is None or ends[1] is None:
                continue
            found[ends[0], ends[1]] = found.get((ends[0], ends[1]), 0) + path.rate_bps
        return found

    @property
    def model(self) -> CostModel:
        """The topology and what was computed of it."""
        return self.routing.model

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts by name, in the order of rows and columns."""
        return self.model.hosts

    def cost(self, src: str, dst: str) -> HostCost:
        """Return what lies between two hosts; raise PathError for one that the topology does not have."""
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
        """The figures of all pairs as arrays [source, destination], worked out when first asked for.

        Integers: `delay_ns` -1 where nothing leads there, `available_bps`, `loss_ppb`, `age_ns` -1 where nothing was
        measured; `measured` has a bit for each figure. Nobody may write to them.
        """
        return between_hosts(self.routing, self.links, self.between, range(len(self.hosts))).sealed()

    @cached_property
    def _row(self) -> Callable[[int], PairColumns]:
        """Return the figures from one source to all hosts; those of the last source are kept for who asks for all."""
        return lru_cache(maxsize=1)(
            lambda row: between_hosts(self.routing, self.links, self.between, range(row, row + 1))
        )

    def _own_later(self, taken_ns: int) -> dict[str, HostLinkState]:
        """Return what hosts measured with its age at a later time."""
        more_ns = max(0, taken_ns - self.taken_ns)
        return {name: replace(state, age_ns=state.age_ns + more_ns) for name, state in self.host_links.items()}

    def _with(self, links: LinkColumns) -> CostMap:
        """Return the map with other figures of links over the same routes."""
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
    """Return what switches measured of links, and hosts of their own."""
    links = model.nominal.observed(snapshot.links, dead, stale_after_ns)
    return links.with_hosts(_rows(model, own), stale_after_ns)


def _rows(model: CostModel, own: Mapping[str, HostLinkState]) -> dict[int, HostLinkState]:
    return {model.up.start + model.number(name): state for name, state in own.items()}


def _dead(snapshot: Snapshot) -> frozenset[LinkKey]:
    return frozenset(key for key, status in snapshot.statuses.items() if status.condition is LinkCondition.DOWN)


def _basis(measured: int, figure: int) -> Basis:
    return _BASIS[bool(measured & (figure << 3)) + bool(measured & figure and measured & (figure << 3))]
