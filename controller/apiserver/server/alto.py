"""The ALTO view of the cost map below /alto of the API server, behind the same gate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Router
from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler

from controller.apiserver.settings import ApiLimits
from controller.cluster.alto.http import router
from controller.cluster.alto.service import AltoService
from controller.cluster.alto.settings import AltoView
from controller.cluster.cost_map import CostModel
from controller.cluster.network_state.follower import follow
from controller.common.errors import ForbiddenError
from dataplane.clock import MonotonicClock
from dataplane.rpc.access import Principal
from dataplane.rpc.access.values import SUBJECTS
from dataplane.topology.file import load_topology

_PATH = "/alto"


@asynccontextmanager
async def alto_view(view: AltoView, limits: ApiLimits) -> AsyncIterator[Router]:
    """Follow the network's state while the block runs; yield the routes. Raise ConfigError, PathError."""
    model, clock = CostModel(load_topology(view.topology)), MonotonicClock()
    async with follow(model, view.network_state, clock=clock) as follower:
        base = f"{(view.base or '').rstrip('/')}{_PATH}"
        service = AltoService(model, follower, clock.now_ns, base=base, most_pairs=view.most_pairs)
        # The gate has already limited the body's size and time.
        yield router(service, request_bytes=None, timeout_s=limits.body_s, path=_PATH, guards=[_may_read])


def _may_read(connection: ASGIConnection[Any, Principal, Any, Any], _: BaseRouteHandler) -> None:
    """Raise ForbiddenError for nodes and centres: their tokens only cover their own resources."""
    principal = connection.user
    if principal.role in SUBJECTS:
        raise ForbiddenError(f"{principal.name} ({principal.role.value} {principal.subject}) may not read the cost map")
