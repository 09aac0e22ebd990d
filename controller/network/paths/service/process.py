"""Entry point of `millrace paths`: run the path server until it is stopped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from collectors.feed.client import FeedClient
from collectors.shards.client import ShardedFeed, feed_at
from controller.common.errors import PathError
from controller.common.standby.lease import Lease
from controller.common.standby.pair import Member, ready_once, serve_in_pair
from controller.common.tracing import traces_of
from controller.network.paths.core import PathServerCore
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.pair_store import PairStore
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.store import PathStore
from controller.network.paths.service.metrics import families
from controller.network.paths.service.server import Feed, PathServer
from controller.network.paths.settings import PathServerSettings
from dataplane.clock import Clock, UtcClock
from dataplane.daemon import Daemon, Lifecycle
from dataplane.metrics_server import registry_of, serve_metrics
from dataplane.running import ready_promptly, run_until
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

LOGGER = logging.getLogger("millrace.paths")


async def serve(
    settings: PathServerSettings,
    topology: Topology,
    feed: Feed,
    clock: Clock,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    lease: Lease | None = None,
) -> None:
    """Decide until `stop` is set; raise PathError for an unusable database or address, FeedError.

    With a `lease` stand by until it is held.
    """
    records = settings.records
    database = open_path_database(records.database)
    try:
        most = records.max_decisions
        store = (
            PathStore(database, max_decisions=most) if lease is None else PairStore(database, lease, max_decisions=most)
        )
        core = PathServerCore(
            topology,
            settings.decide,
            flows=settings.flows,
            store=store,
            engineering=settings.engineering,
            max_flows=settings.max_flows,
            forget_after_ns=settings.forget_after_ns,
            clock=clock,
        )
        recorder = Recorder(database, max_records=records.max_records, batch_records=records.batch_records)
        async with AsyncExitStack() as stack:
            traces = traces_of(settings.traces, "paths", settings.tls)
            stack.push_async_callback(asyncio.to_thread, traces.close)
            server = PathServer(core, recorder, settings, clock, traces, lease=lease)
            where = ""
            if settings.metrics is not None:
                registry = registry_of(lambda: families(server.status()))
                where = serve_metrics(registry, settings.metrics, stack, PathError)
            if on_ready is not None:
                on_ready(f"routes at {server.address}{where}")
            await run_until(server.run(feed), stop)
    finally:
        database.close()


def feed_of(settings: PathServerSettings, topology: Topology) -> FeedClient | ShardedFeed:
    """Return the reader of the collector, or of several."""
    tls, warn, tell = settings.tls, LOGGER.warning, LOGGER.info
    if settings.collectors is not None:
        return ShardedFeed(topology, settings.collectors, tls=tls, on_wait=warn, on_answer=tell)
    return feed_at(settings.feed, topology, tls=tls, on_wait=warn, on_answer=tell)


async def _serve(settings: PathServerSettings, lifecycle: Lifecycle[PathServerSettings]) -> None:
    topology = load_topology(settings.topology)
    ready = ready_once(ready_promptly(lifecycle.ready))

    async def serve_once(lease: Lease | None, stop: asyncio.Event) -> None:
        async with feed_of(settings, topology) as feed:
            await serve(settings, topology, feed, UtcClock(), stop, on_ready=ready, lease=lease)

    await serve_in_pair(settings.standby, Member("paths", settings.listen, LOGGER), serve_once, lifecycle.stop)


DAEMON: Final = Daemon("paths", PathServerSettings, _serve)
