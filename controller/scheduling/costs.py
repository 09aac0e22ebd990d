"""Cost maps for repeated decisions: current telemetry, else the topology's nominal figures."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from collectors.values import Snapshot as NetworkSnapshot
from controller.apiserver.resources import Node
from controller.cluster.cost_map import CostMap
from controller.cluster.cost_map.model import CostModel
from controller.cluster.cost_map.values import HostLinkState
from controller.cluster.network_state.follower import CostMapFollower, follow
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.errors import CostMapError, PathError, SchedulerError
from dataplane.topology.file import load_topology

Costs = Callable[[], CostMap | None]
"""Returns the current cost map, None if nothing is known."""


class CostSource:
    """A source of cost maps that also takes the hosts' own measurements of their links, which no switch measures."""

    def __init__(self, current: Costs, follower: CostMapFollower | None = None) -> None:
        self._current, self._follower = current, follower

    def __call__(self) -> CostMap | None:
        """Return the current cost map."""
        return self._current()

    def take_nodes(self, nodes: Iterable[Node]) -> None:
        """Take what nodes report about their hosts' links; skip nodes that are not hosts of the topology."""
        if self._follower is None:
            return
        for node in nodes:
            link, name = node.status.link, node.metadata.name
            if link is not None and link.rate_bps is not None:
                free_bps = max(0, link.rate_bps - link.sent_bps)
                with suppress(PathError):
                    self._follower.take_host_links((HostLinkState(name, free_bps, link.age_ns),))


@asynccontextmanager
async def costs_of(
    topology: str | None, network: NetworkStateSettings | None, logger: logging.Logger
) -> AsyncIterator[CostSource]:
    """Provide the costs between a topology's hosts: from telemetry, else nominal figures, marked as such.

    Logs once that telemetry is not used, and why.
    """
    if topology is None:
        if network is not None:
            raise SchedulerError("network: the network's state needs a topology")
        yield CostSource(_no_costs)
        return
    model = CostModel(load_topology(topology))
    nominal = CostMap.of(model, NetworkSnapshot(0, {}, {}, {}))
    if network is None:
        yield CostSource(lambda: nominal)
        return
    async with follow(model, network) as follower:
        reported: list[str] = []

        def current() -> CostMap:
            try:
                costs = follower.current().costs
            except CostMapError as error:
                if not reported:
                    logger.warning("deciding by nominal figures: %s", error)
                    reported.append(str(error))
                return nominal
            reported.clear()
            return costs

        yield CostSource(current, follower)


def _no_costs() -> CostMap | None:
    return None
