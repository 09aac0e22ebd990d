"""`millrace placement serve`: runs the workload controller over the API server until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from controller.apiserver.client import ApiClient, find_place
from controller.workloads.placement.driver import MainController, Metrics
from controller.workloads.placement.errors import PlacementError
from controller.workloads.placement.settings import PlacementSettings
from dataplane.clock import MonotonicClock
from dataplane.config import load
from dataplane.metrics_server import serve_metrics
from dataplane.running import run_until, stop_on_signals


def load_settings(path: Path) -> PlacementSettings:
    """Return a settings file's content; raise ConfigError with file, line and key."""
    return load(path, PlacementSettings)


def run(settings: PlacementSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Work until SIGINT or SIGTERM."""

    async def until_signalled() -> None:
        await serve(settings, stop_on_signals(), on_ready=on_ready)

    asyncio.run(until_signalled())


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
