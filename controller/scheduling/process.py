"""The `millrace scheduler serve` process: a scheduler over the API server, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from controller.apiserver.client import ApiClient, find_place
from controller.common.errors import SchedulerError
from controller.scheduling.costs import costs_of
from controller.scheduling.framework.profiles import profiles_of
from controller.scheduling.overload import monitor_of
from controller.scheduling.serving.scheduler import Metrics, Scheduler
from controller.scheduling.serving.tasks.scheduler import TaskScheduler
from controller.scheduling.settings import SchedulerSettings
from dataplane.clock import MonotonicClock
from dataplane.config import load
from dataplane.config.changes import not_in_force
from dataplane.errors import MillraceError
from dataplane.load.metrics import load_families
from dataplane.metrics_server import LoopCollector, serve_metrics
from dataplane.running import collect_seldom, run_until, stop_on_signals, until_first_ends

LOGGER = logging.getLogger("millrace.scheduler")


def load_settings(path: Path) -> SchedulerSettings:
    """Return the content of a settings file; raise ConfigError with file, line and key."""
    return load(path, SchedulerSettings)


def run(
    settings: SchedulerSettings,
    on_ready: Callable[[str], None] | None = None,
    *,
    reload: Callable[[], SchedulerSettings] | None = None,
) -> None:
    """Schedule until SIGINT or SIGTERM; SIGHUP applies the profiles of `reload`, nothing else."""
    collect_seldom()
    asyncio.run(_until_signalled(settings, on_ready, reload))


async def _until_signalled(
    settings: SchedulerSettings,
    on_ready: Callable[[str], None] | None,
    reload: Callable[[], SchedulerSettings] | None,
) -> None:
    def on_scheduler(scheduler: Scheduler) -> None:
        if reload is not None:
            hang_up = partial(take_profiles, scheduler, settings, reload)
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)

    await serve(settings, stop_on_signals(), on_ready=on_ready, on_scheduler=on_scheduler)


def take_profiles(scheduler: Scheduler, before: SchedulerSettings, read: Callable[[], SchedulerSettings]) -> None:
    """Apply the profiles of a scheduler's current settings; invalid ones change nothing.

    Logs the other keys that differ from `before`, the settings at its start: they take effect at the next start.
    """
    try:
        settings = read()
        scheduler.take_profiles(profiles_of(settings.profiles))
    except MillraceError as error:
        LOGGER.warning("profiles stay as they were: %s", error)
        return
    LOGGER.info("profiles %s are in force", ", ".join(scheduler.profiles))
    waiting = not_in_force(before, settings, reloaded=("profiles",))
    if waiting:
        LOGGER.warning("%s", waiting)


async def serve(
    settings: SchedulerSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_scheduler: Callable[[Scheduler], None] | None = None,
) -> None:
    """Schedule until `stop` is set; raise MillraceError for invalid settings.

    The API server may still be down. `on_ready` gets one line, once the policies are constructed.
    """
    profiles = profiles_of(settings.profiles)
    metrics = Metrics(time.time_ns)
    async with AsyncExitStack() as stack:
        costs = await stack.enter_async_context(costs_of(settings.topology, settings.network, LOGGER))

        def away(line: str) -> None:
            scheduler.note_away(line)

        client = ApiClient(find_place(settings.api), on_wait=away)
        await stack.enter_async_context(client)
        where = serve_metrics(metrics.registry, settings.metrics, stack, SchedulerError)
        scheduler = Scheduler(
            client,
            settings,
            profiles,
            costs=costs,
            clock=MonotonicClock(),
            metrics=metrics,
            on_nodes=costs.take_nodes,
        )
        await stack.enter_async_context(scheduler.lessons.opened())
        if on_scheduler is not None:
            on_scheduler(scheduler)
        if on_ready is not None:
            on_ready(f"profiles {', '.join(profiles)}, API at {client.place.address}{where}")
        tasks = None
        if settings.tasks is not None:
            tasks = TaskScheduler(
                client,
                settings.tasks,
                name=settings.name,
                costs=costs,
                clock=MonotonicClock(),
                now_ns=time.time_ns,
                registry=metrics.registry,
                topology=settings.topology,
                learning=metrics.learning,
            )
            await stack.enter_async_context(tasks.lessons.opened())
        monitor = monitor_of(scheduler, tasks, LOGGER)
        metrics.registry.register(LoopCollector(lambda: load_families("scheduler", monitor.load)))
        works = [scheduler.run(), monitor.run(), *([] if tasks is None else [tasks.run()])]
        await run_until(until_first_ends(*works), stop)
