"""The cost map in the page: delay, free bandwidth and loss between hosts, as packets go now."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import Any, Final

from collectors.values import Snapshot
from controller.apiserver.view.state import NetworkView
from controller.cluster.cost_map import UNREACHABLE_NS, CostMap, CostModel, HostCost
from controller.common.errors import PathError, UnavailableError
from controller.network.intents import RouteSet
from controller.network.paths.service.client import RouteClient

MOST_HOSTS: Final = 40
_ROUTES_S: Final = 5.0


class Costs:
    """Cost maps of a view's newest snapshot; use in one event loop."""

    def __init__(self, view: NetworkView, routes: RouteClient | None) -> None:
        self._view, self._routes = view, routes
        self._newest: tuple[int, CostMap] | None = None

    @cached_property
    def _model(self) -> CostModel:
        return CostModel(self._view.topology)

    async def value(self, most: int) -> dict[str, Any]:
        """Return the costs between the first hosts, `most` of them; raise UnavailableError."""
        version, snapshot = self._view.version, self._view.snapshot
        if snapshot is None:
            raise UnavailableError("no state of the network has come yet")
        if self._newest is None or self._newest[0] != version:
            self._newest = version, await self._made(snapshot)
        costs = self._newest[1]
        hosts = costs.hosts[:most]
        rows = await asyncio.to_thread(lambda: [[_cost(costs.cost(src, dst)) for dst in hosts] for src in hosts])
        return {"hosts": hosts, "of": len(costs.hosts), "rows": rows}

    async def _made(self, snapshot: Snapshot) -> CostMap:
        routes: RouteSet | None = None
        if self._routes is not None:
            try:
                async with asyncio.timeout(_ROUTES_S):
                    routes = await self._routes.current_routes()
            except (PathError, TimeoutError) as error:
                raise UnavailableError(str(error) or "the path server did not tell its routes in time") from None
        try:
            return await asyncio.to_thread(
                lambda: (
                    CostMap.of(self._model, snapshot) if routes is None else CostMap.of(self._model, snapshot, routes)
                )
            )
        except PathError as error:
            raise UnavailableError(str(error)) from None


def _cost(cost: HostCost) -> list[Any] | None:
    """Return delay (ns), free bandwidth (bit/s), loss (a share), and whether the delay was measured."""
    if cost.src == cost.dst or cost.delay_ns == UNREACHABLE_NS:
        return None
    return [cost.delay_ns, cost.available_bps, cost.loss_ppb / 1e9, cost.age_ns is not None]
