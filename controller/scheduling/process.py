"""The `millrace scheduler serve` process: a scheduler over the API server, until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from controller.apiserver.client import ApiClient, find_place
from controller.common.errors import SchedulerError
from controller.common.standby.lease import Lease
from controller.common.standby.metrics import standby_families
from controller.common.standby.pair import Member, ready_once, serve_in_pair, until_active
from controller.scheduling.costs import costs_of
from controller.scheduling.overload import monitor_of
from controller.scheduling.pods import PodProfile
from controller.scheduling.serving.metrics import Metrics
from controller.scheduling.serving.scheduler import Scheduler
from controller.scheduling.serving.tasks.scheduler import TaskScheduler
from controller.scheduling.settings import RELOADED, SchedulerSettings
from dataplane.clock import MonotonicClock
from dataplane.daemon import Daemon, Lifecycle, Reload
from dataplane.load.metrics import load_families
from dataplane.metrics_server import LoopCollector, serve_metrics
from dataplane.running import collect_seldom, run_until, until_first_ends

LOGGER = logging.getLogger("millrace.scheduler")


async def serve(
    settings: SchedulerSettings,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_scheduler: Callable[[Scheduler], None] | None = None,
    on_reload: Callable[[Reload[SchedulerSettings]], None] | None = None,
    lease: Lease | None = None,
) -> None:
    """Schedule until `stop` is set; raise MillraceError for invalid settings.

    The API server may still be down. `on_ready` gets one line, once the policies are constructed, `on_reload` what
    changed settings change. With a `lease` nothing is decided until it is held.
    """
    profiles = PodProfile.by_name(settings.profiles)
    metrics = Metrics(time.time_ns)
    async with AsyncExitStack() as stack:
        costs = await stack.enter_async_context(costs_of(settings.topology, settings.network, LOGGER))

        def on_wait(line: str) -> None:
            scheduler.note_unreachable(line)

        fence = None if lease is None else lambda: f"{lease.name} {lease.check()}"
        client = ApiClient(find_place(settings.api), on_wait=on_wait, fence=fence)
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
            may_decide=partial(until_active, lease),
        )
        await stack.enter_async_context(scheduler.lessons.opened())
        if on_scheduler is not None:
            on_scheduler(scheduler)
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
                may_decide=partial(until_active, lease),
            )
            await stack.enter_async_context(tasks.lessons.opened())
        if on_reload is not None:
            on_reload(reload_of(scheduler, tasks))
        if on_ready is not None:
            on_ready(f"profiles {', '.join(profiles)}, API at {client.place.address}{where}")
        monitor = monitor_of(scheduler, tasks, LOGGER)
        metrics.registry.register(LoopCollector(lambda: load_families("scheduler", monitor.load)))
        if lease is not None:
            metrics.registry.register(LoopCollector(lambda: standby_families("scheduler", lease.status())))
        works = [scheduler.run(), monitor.run(), *([] if tasks is None else [tasks.run()])]
        await run_until(until_first_ends(*works), stop)


def reload_of(scheduler: Scheduler, tasks: TaskScheduler | None = None) -> Reload[SchedulerSettings]:
    """Return what SIGHUP applies to a scheduler: its profiles, and the scoring policy of its tasks."""

    def take(settings: SchedulerSettings) -> str:
        scheduler.take_profiles(PodProfile.by_name(settings.profiles))
        line = f"using profiles {', '.join(scheduler.profiles)}"
        if tasks is None or settings.tasks is None:
            return line
        return f"{line}; scoring policy {tasks.take_scoring(settings.tasks.scoring)}"

    kept = "keeping the previous profiles" + ("" if tasks is None else " and scoring policy")
    return Reload(take, kept, keys=RELOADED)


async def _serve(settings: SchedulerSettings, lifecycle: Lifecycle[SchedulerSettings]) -> None:
    collect_seldom()
    ready, in_force = ready_once(lifecycle.ready), settings
    present: list[Reload[SchedulerSettings]] = []

    def on_reload(reload: Reload[SchedulerSettings]) -> None:
        present.append(reload)
        if len(present) == 1:
            lifecycle.reload(Reload(apply, reload.unchanged, keys=reload.keys))

    def apply(reloaded: SchedulerSettings) -> str | Awaitable[str]:
        nonlocal in_force
        line = present[-1].apply(reloaded)
        in_force = reloaded
        return line

    async def serve_once(lease: Lease | None, stop: asyncio.Event) -> None:
        await serve(in_force, stop, on_ready=ready, on_reload=on_reload, lease=lease)

    await serve_in_pair(settings.standby, Member("scheduler", "", LOGGER), serve_once, lifecycle.stop)


DAEMON: Final = Daemon("scheduler", SchedulerSettings, _serve)
load_settings: Final = DAEMON.load_settings
