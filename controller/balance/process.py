"""The `millrace balance serve` process: the management service of unit pools, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from controller.apiserver.client import ApiClient, find_place
from controller.balance.errors import BalanceError
from controller.balance.serving.driver import BalanceService, Metrics
from controller.balance.serving.history import History
from controller.balance.settings import BalanceSettings
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.metrics_server import serve_metrics
from dataplane.running import run_until


async def serve(
    settings: BalanceSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_service: Callable[[BalanceService], None] | None = None,
) -> None:
    """Serve until `stop` is set; raise MillraceError for invalid settings.

    The API server may still be down. `on_ready` gets one line.
    """
    metrics = Metrics()
    async with AsyncExitStack() as stack:

        def away(line: str) -> None:
            service.note_away(line)

        history = None if settings.history is None else History(settings.history.file)
        if history is not None:
            stack.callback(history.close)
        client = await stack.enter_async_context(ApiClient(find_place(settings.api), on_wait=away))
        where = serve_metrics(metrics.registry, settings.metrics, stack, BalanceError)
        service = BalanceService(client, settings, clock=MonotonicClock(), metrics=metrics, history=history)
        if on_service is not None:
            on_service(service)
        if on_ready is not None:
            kept = "no history" if settings.history is None else f"history in {settings.history.file}"
            on_ready(f"one round per {settings.interval_s:g} s, {kept}, API at {client.place.address}{where}")
        await run_until(service.run(), stop)


async def _serve(settings: BalanceSettings, lifecycle: Lifecycle[BalanceSettings]) -> None:
    await serve(settings, lifecycle.stop, on_ready=lifecycle.ready)


DAEMON: Final = Daemon("balance", BalanceSettings, _serve)
