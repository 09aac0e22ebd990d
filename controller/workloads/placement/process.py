"""`millrace placement serve`: run the workload controller over the API server until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from controller.apiserver.client import ApiClient, find_place
from controller.workloads.placement.driver import MainController, Metrics
from controller.workloads.placement.errors import PlacementError
from controller.workloads.placement.settings import PlacementSettings
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.metrics_server import serve_metrics
from dataplane.running import run_until


async def serve(
    settings: PlacementSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_controller: Callable[[MainController], None] | None = None,
) -> None:
    """Work until `stop` is set; raise MillraceError for invalid settings.

    The API server may start later. `on_ready` gets one line.
    """
    metrics = Metrics()
    async with AsyncExitStack() as stack:

        def away(line: str) -> None:
            controller.note_away(line)

        client = await stack.enter_async_context(ApiClient(find_place(settings.api), on_wait=away))
        where = serve_metrics(metrics.registry, settings.metrics, stack, PlacementError)
        controller = MainController(client, settings, clock=MonotonicClock(), metrics=metrics)
        if on_controller is not None:
            on_controller(controller)
        if on_ready is not None:
            silent = f"nodes are silent {settings.silence.margin_s:g} s after their lease"
            on_ready(f"{silent}, API at {client.place.address}{where}")
        await run_until(controller.run(), stop)


async def _serve(settings: PlacementSettings, lifecycle: Lifecycle[PlacementSettings]) -> None:
    await serve(settings, lifecycle.stop, on_ready=lifecycle.ready)


DAEMON: Final = Daemon("placement", PlacementSettings, _serve)
