"""Follows the collector and the path server for the page, across their restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from collectors.errors import FeedError
from collectors.feed.client import FeedClient, FeedClientSettings
from controller.apiserver.settings import ViewSettings
from controller.apiserver.view.state import SHOWN_NS, NetworkView
from controller.network.aggregation.service.client import JobClient, JobClientSettings
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.move_reports import move_of
from controller.network.status.service import ControllerClient, ControllerClientSettings
from dataplane.errors import MillraceError

LOGGER: Final = logging.getLogger("millrace.view")
_AGAIN_S: Final = 5.0
"""Delay before retrying after an error due to the other side's version."""
_ASKED_S: Final = 1.0
_RECENT: Final = 200


@dataclass(frozen=True, slots=True)
class Clients:
    """Clients of what a view follows; no `routes`: the settings name no path server."""

    feed: FeedClient
    routes: RouteClient | None


Now: TypeAlias = Callable[[], int]
Follow: TypeAlias = Callable[[NetworkView, ViewSettings, Now], AbstractAsyncContextManager[Clients | None]]
"""Keeps a view current while the block runs, and yields the clients that it does so by, None for none."""


@asynccontextmanager
async def followed(
    view: NetworkView, settings: ViewSettings, now_ns: Callable[[], int]
) -> AsyncIterator[Clients | None]:
    """Keep a view current while the block runs; yield the clients, None without state. Raise FeedError, PathError."""
    state = settings.network_state
    if state is None:
        yield None
        return
    if "," in state.feed:
        raise FeedError("network_state.feed: the page follows one collector, not several")
    async with AsyncExitStack() as stack:
        feed = await stack.enter_async_context(
            FeedClient(
                FeedClientSettings(address=state.feed, tls=state.tls),
                on_wait=partial(view.note_problem, "collector"),
            )
        )
        routes: RouteClient | None = None
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [
            group.create_task(_keep(view, "collector", partial(_snapshots, view, feed, state.interval_ns))),
            group.create_task(_keep(view, "collector", partial(_events, view, feed, now_ns))),
        ]
        if state.path_server is not None:
            routes = await stack.enter_async_context(
                RouteClient(
                    RouteClientSettings(address=state.path_server, tls=state.tls),
                    on_wait=partial(view.note_problem, "path server"),
                )
            )
            tasks.append(group.create_task(_keep(view, "path server", partial(_moves, view, routes))))
            tasks.append(group.create_task(_ask(view, routes)))
        if settings.job_service is not None:
            jobs = JobClient(JobClientSettings(address=settings.job_service, tls=state.tls))
            tasks.append(group.create_task(_jobs(view, await stack.enter_async_context(jobs))))
        if settings.controller is not None:
            status = ControllerClient(ControllerClientSettings(address=settings.controller, tls=state.tls))
            tasks.append(group.create_task(_status(view, await stack.enter_async_context(status))))
        try:
            yield Clients(feed, routes)
        finally:
            for task in tasks:
                task.cancel()


async def _keep(view: NetworkView, source: str, watch: Callable[[], Awaitable[None]]) -> None:
    """Retry forever: a peer with an incompatible version may be replaced by a compatible one."""
    while True:
        try:
            await watch()
        except MillraceError as error:
            view.note_problem(source, str(error))
            LOGGER.warning("%s", error)
        await asyncio.sleep(_AGAIN_S)


async def _snapshots(view: NetworkView, feed: FeedClient, interval_ns: int) -> None:
    async with aclosing(feed.snapshots(interval_ns)) as snapshots:
        async for snapshot in snapshots:
            view.take_snapshot(snapshot)


async def _events(view: NetworkView, feed: FeedClient, now_ns: Callable[[], int]) -> None:
    # Events have the times of the collector's clock, which began at any time.
    taken_ns = (await feed.status()).taken_ns
    ahead_ns = now_ns() - taken_ns
    async with aclosing(feed.events(max(0, taken_ns - SHOWN_NS))) as batches:
        async for batch in batches:
            if not batch:  # a subscription begins, perhaps to a collector on another machine
                ahead_ns = now_ns() - (await feed.status()).taken_ns
            view.take_events([replace(event, time_ns=event.time_ns + ahead_ns) for event in batch])


async def _ask(view: NetworkView, routes: RouteClient) -> None:
    """Hear of the path server each second: it may move nothing for hours."""
    while True:
        try:
            view.take_drains((await routes.drains()).drains)
            view.hear("path server")
        except MillraceError as error:
            view.note_problem("path server", str(error))
        await asyncio.sleep(_ASKED_S)


async def _jobs(view: NetworkView, client: JobClient) -> None:
    while True:
        try:
            view.take_jobs(await client.jobs())
        except MillraceError as error:
            view.note_problem("job service", str(error))
        await asyncio.sleep(_ASKED_S)


async def _status(view: NetworkView, client: ControllerClient) -> None:
    while True:
        try:
            view.take_controller(await client.status())
        except MillraceError as error:
            view.note_problem("controller", str(error))
        await asyncio.sleep(_ASKED_S)


async def _moves(view: NetworkView, routes: RouteClient) -> None:
    async for decision in routes.decisions(_RECENT):
        view.take_move(move_of(decision))
