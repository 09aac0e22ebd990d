"""What lies between nodes, for who decides over and over: as telemetry says now, else the topology's figures."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from collectors.values import Snapshot as NetworkSnapshot
from controller.cluster.cost_map import CostMap
from controller.cluster.cost_map.model import CostModel
from controller.errors import CostMapError
from controller.network_state.follower import follow
from controller.network_state.settings import NetworkStateSettings
from controller.schedulers.errors import SchedulerError
from dataplane.topology.file import load_topology

Costs = Callable[[], CostMap | None]
"""What lies between nodes now, None where nothing is known."""


@asynccontextmanager
async def costs_of(
    topology: str | None, network: NetworkStateSettings | None, logger: logging.Logger
) -> AsyncIterator[Costs]:
    """Give what lies between a topology's hosts: as telemetry says now, else nominal figures, which say so themselves.

    The log says once that telemetry does not count, and why.
    """
    if topology is None:
        if network is not None:
            raise SchedulerError("network: without a topology nothing can be made of the network's state")
        yield _nothing
        return
    model = CostModel(load_topology(topology))
    nominal = CostMap.of(model, NetworkSnapshot(0, {}, {}, {}))
    if network is None:
        yield lambda: nominal
        return
    async with follow(model, network) as follower:
        said: list[str] = []

        def current() -> CostMap:
            try:
                found = follower.current().costs
            except CostMapError as error:
                if not said:
                    logger.warning("decisions are by nominal figures: %s", error)
                    said.append(str(error))
                return nominal
            said.clear()
            return found

        yield current


def _nothing() -> CostMap | None:
    return None
