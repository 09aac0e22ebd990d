"""The current cost map: rebuilt from each snapshot and set of routes, with its age, and refused when it is too old."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from collectors.values import Snapshot
from controller.cluster.cost_map.columns import rates_of
from controller.cluster.cost_map.cost_map import DEFAULT_STALE_AFTER_NS, CostMap
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.routing import NO_ROUTES
from controller.cluster.cost_map.values import HostLinkState
from controller.common.errors import CostMapError, PathError
from controller.network.intents import RouteSet
from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class LiveCosts:
    """A current cost map: `taken_ns` is when its figures were taken, by the keeper's clock.

    Ages in the map are as of that time. `version` increases by one with each map.
    """

    costs: CostMap
    taken_ns: int
    version: int

    def age_ns(self, now_ns: int) -> int:
        """Return the age of the network state behind the map."""
        return max(0, now_ns - self.taken_ns)


class CostMapKeeper:
    """Keeps the newest map of one topology; it has no clock: callers pass the times.

    With `wants_routes` there is no map until the first routes arrive: before that, packets may follow unknown ones.
    """

    def __init__(self, model: CostModel, *, wants_routes: bool, stale_after_ns: int = DEFAULT_STALE_AFTER_NS) -> None:
        self.model = model
        self.stale_after_ns = stale_after_ns
        self._routes = None if wants_routes else NO_ROUTES
        self._snapshot: tuple[Snapshot, int] | None = None
        self._hosts: dict[str, tuple[HostLinkState, int]] = {}
        self._problem: str | None = None
        self._live: LiveCosts | None = None

    def observe(self, snapshot: Snapshot, taken_ns: int) -> None:
        """Accept a newer snapshot, with its time by the local clock."""
        self._snapshot = snapshot, taken_ns
        self._make()

    def take_routes(self, routes: RouteSet) -> None:
        """Accept the routes that packets follow from now on."""
        self._routes = routes
        self._make()

    def take_host_links(self, states: Iterable[HostLinkState], taken_ns: int) -> None:
        """Accept hosts' measurements of their own links, with ages as of a local time; used from the next map on.

        Raise PathError for an unknown host.
        """
        for state in states:
            self.model.number(state.host)
            self._hosts[state.host] = state, taken_ns

    @property
    def newest(self) -> LiveCosts | None:
        """The newest map, however old; None before the first and if the last input was unusable."""
        return self._live

    @property
    def has_routes(self) -> bool:
        """True if the routes of packets are known."""
        return self._routes is not None

    def age_ns(self, now_ns: int) -> int | None:
        """Return how old the newest snapshot is; None before the first."""
        return None if self._snapshot is None else max(0, now_ns - self._snapshot[1])

    def current(self, now_ns: int) -> LiveCosts:
        """Return the current map; raise CostMapError if there is none, or none recent enough."""
        if self._problem is not None:
            raise CostMapError(self._problem)
        if self._live is None:
            waits_for_routes = self._snapshot is not None and self._routes is None
            missing = "the path server has sent no routes" if waits_for_routes else "the collector has sent nothing"
            raise CostMapError(f"no cost map: {missing} yet")
        age_ns = self._live.age_ns(now_ns)
        if age_ns > self.stale_after_ns:
            limit_s = self.stale_after_ns / NS_PER_S
            raise CostMapError(
                f"no cost map: the network's state is {age_ns / NS_PER_S:.1f} s old, {limit_s:.1f} s at most"
            )
        return self._live

    def _make(self) -> None:
        """Build the map from the last inputs; if they do not fit the topology there is none."""
        if self._snapshot is None or self._routes is None:
            return
        snapshot, taken_ns = self._snapshot
        problem = self._misfit(snapshot)
        if problem is None:
            try:
                costs = self._costs(snapshot, self._routes, self._host_links(taken_ns))
            except PathError as error:
                problem = f"the path server's routes do not fit: {error}"
            else:
                self._live = LiveCosts(costs, taken_ns, 1 if self._live is None else self._live.version + 1)
        self._problem = problem

    def _costs(self, snapshot: Snapshot, routes: RouteSet, own: list[HostLinkState]) -> CostMap:
        if self._live is None:
            return CostMap.of(self.model, snapshot, routes, stale_after_ns=self.stale_after_ns, host_links=own)
        return self._live.costs.changed(snapshot, routes, own)

    def _host_links(self, now_ns: int) -> list[HostLinkState]:
        """Return the hosts' measurements of their own links with ages as of a time."""
        return [
            replace(state, age_ns=max(0, state.age_ns + now_ns - taken_ns))
            for state, taken_ns in list(self._hosts.values())
        ]

    def _misfit(self, snapshot: Snapshot) -> str | None:
        """Return what is wrong with links that do not belong to this topology, None if all do."""
        name, nominal = self.model.topology.name, self.model.nominal
        rows = nominal.rows_of(snapshot.links)
        misfits = np.flatnonzero((rows < 0) | (rates_of(snapshot.links) != nominal.rate_bps[rows]))
        if not len(misfits):
            return None
        link, row = list(snapshot.links)[misfits[0]], rows[misfits[0]]
        if row < 0:
            return f"the collector measures another network: topology {name} has no link {link}"
        return (
            f"the collector measures another network: {link} has {snapshot.links[link].rate_bps} bit/s there, "
            f"{nominal.rate_bps[row]} bit/s in topology {name}"
        )
