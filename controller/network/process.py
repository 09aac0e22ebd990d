"""Entry point of `millrace controller`: run the daemon over gRPC until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from pathlib import Path
from typing import Final, TypeAlias

from msgspec.structs import replace
from prometheus_client.core import Metric

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.job_names import report_jobs
from collectors.shards.client import ShardedFeed
from collectors.shards.following import live_collectors
from collectors.shards.values import LiveCollector
from controller.common.errors import ControllerError
from controller.common.standby.lease import Lease
from controller.common.standby.pair import Member, ready_once, serve_in_pair, until_active
from controller.common.tracing import traces_of
from controller.network.aggregation.service import metrics as job_metrics
from controller.network.aggregation.service.server import JobService
from controller.network.aggregation.storage import FileStorage, JobStorage, PairStorage, default_database
from controller.network.content.reconciler import StoreReconciler
from controller.network.content.settings import StoreSettings
from controller.network.daemon import Daemon
from controller.network.daemon_settings import RELOADED, DaemonSettings
from controller.network.driver import Connect, SwitchSession
from controller.network.features import Features
from controller.network.gnmi.grpc_session import PortTarget, PortWatcher, connection_turns
from controller.network.gnmi.observer import PortObserver
from controller.network.gnmi.settings import wanted_hellos
from controller.network.intents import RouteSet
from controller.network.links.publisher import Subscriber
from controller.network.owners.base import Owner
from controller.network.owners.telemetry import Telemetry
from controller.network.p4runtime.grpc_session import GrpcSession
from controller.network.p4runtime.session import FABRIC, FABRIC_AGGREGATION, check_schema, fabric_program, load_schema
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.report_owners import ReportOwners, check_sharing
from controller.network.status import metrics as status_metrics
from controller.network.status.service import StatusServer
from dataplane.clock import NS_PER_S, Clock, MonotonicClock, UtcClock
from dataplane.daemon import Daemon as Process
from dataplane.daemon import Lifecycle, Reload
from dataplane.load.monitor import LoadMonitor
from dataplane.load.values import DaemonLoad
from dataplane.metrics_server import registry_of, serve_metrics
from dataplane.rpc.access.tls import check_client
from dataplane.rpc.backoff import Backoff
from dataplane.running import run_until, until_first_ends
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

LOGGER = logging.getLogger("millrace.controller")
"""The keys that SIGHUP applies."""
_RELIEF: Final = "give the controller a dedicated core, or split the fabric among several controllers"


async def serve(
    settings: DaemonSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    *,
    on_ready: Callable[[str], None] | None = None,
    on_daemon: Callable[[Daemon], None] | None = None,
    on_store: Callable[[StoreReconciler], None] | None = None,
    more: Sequence[Owner] = (),
    lease: Lease | None = None,
) -> None:
    """Control until `stop` is set; raise ControllerError if settings, topology and program do not fit together.

    `on_daemon` gets the daemon before it starts, so that its status can be watched; `on_store` the manager of the
    store, if the program has one. `more` are owners of tables that the program has in addition to ours. With a `lease`
    stand by until it is held: follow routes and ports, and connect to no switch.
    """
    if settings.tls is not None:
        check_client(settings.tls)
    features = features_of(settings, topology, more)
    schema = load_schema(*program_files(settings))
    check_schema(schema, features.coordinator.samples())
    async with AsyncExitStack() as stack:
        traces = traces_of(settings.traces, "controller", settings.tls)
        stack.push_async_callback(asyncio.to_thread, traces.close)
        path_server, collector = await _servers(settings, topology, stack)
        aggregation = settings.effective_aggregation
        states = None
        if aggregation is not None and collector is not None:
            states = collector.snapshots(aggregation.interval_ns)
        daemon = Daemon(
            features,
            connector(settings, topology, lease),
            nothing() if path_server is None else path_server.routes(),
            clock,
            retry=settings.retry,
            rng=random.Random(),
            states=states,
            return_after_ns=settings.links.return_after_ns,
            traces=traces,
            lease=lease,
        )
        monitor = LoadMonitor(LOGGER, loop_advice=_RELIEF, clock=clock)
        if on_daemon is not None:
            on_daemon(daemon)
        if on_store is not None and daemon.store is not None:
            on_store(daemon.store)
        service = _job_service(settings, topology, daemon, clock=clock, lease=lease, stack=stack)
        status = None
        if settings.listen is not None:
            status = StatusServer(settings.listen, lambda: daemon.status(monitor.load), settings.tls)
            await status.start()
            stack.push_async_callback(status.stop)
        metrics = ""
        if settings.metrics is not None:
            registry = registry_of(lambda: _families(daemon, monitor.load, service))
            metrics = serve_metrics(registry, settings.metrics, stack, ControllerError)
        if on_ready is not None:
            where = "" if service is None else f", jobs at {service.address}"
            where += metrics if status is None else f", status at {status.address}{metrics}"
            on_ready(f"controlling {len(topology.switches)} switches of {topology.name}{where}")
        subscribers = []
        if path_server is not None:
            name = f"the path server at {settings.path_server}"
            subscribers.append(Subscriber(name, path_server.note_links, LOGGER.warning, LOGGER.info))
        if collector is not None:
            name = "a collector" if settings.collector is None else f"the collector at {settings.collector}"
            subscribers.append(Subscriber(name, collector.note_links, LOGGER.warning, LOGGER.info))
        watchers = port_watchers(settings, topology, daemon.links)
        sharing = _sharing(settings, topology, daemon)
        work = _work(daemon, service, collector, subscribers, watchers, lease=lease, sharing=sharing)
        await run_until(until_first_ends(work, monitor.run()), stop)


def _job_service(
    settings: DaemonSettings,
    topology: Topology,
    daemon: Daemon,
    *,
    clock: Clock,
    lease: Lease | None,
    stack: AsyncExitStack,
) -> JobService | None:
    """Return the service, with the jobs of the controller before; in a pair it gets them once it is active."""
    jobs, aggregation = settings.jobs, settings.effective_aggregation
    if jobs is None or aggregation is None or daemon.jobs is None:
        return None
    if lease is None:
        storage: JobStorage = FileStorage(jobs.database or default_database(jobs.listen))
    else:
        storage = PairStorage(lease)
    stack.callback(storage.close)
    change_ns = aggregation.deadline_ns
    service = JobService(jobs, topology, daemon.jobs, clock, change_ns=change_ns, tls=settings.tls, storage=storage)
    if lease is None:
        service.adopt()
    else:
        daemon.on_active = service.adopt
    return service


async def _servers(
    settings: DaemonSettings, topology: Topology, stack: AsyncExitStack
) -> tuple[RouteClient | None, FeedClient | ShardedFeed | None]:
    """Return clients of the path server and the collectors, None for one that the settings do not name."""
    path_server: RouteClient | None = None
    collector: FeedClient | ShardedFeed | None = None
    if settings.path_server is not None:
        routes_at = RouteClientSettings(address=settings.path_server, tls=settings.tls)
        path_server = RouteClient(routes_at, on_wait=LOGGER.warning, on_answer=LOGGER.info)
        await stack.enter_async_context(path_server)
    if settings.collector is not None:
        feed_at = FeedClientSettings(address=settings.collector, tls=settings.tls)
        collector = FeedClient(feed_at, on_wait=LOGGER.warning, on_answer=LOGGER.info)
        await stack.enter_async_context(collector)
    if settings.collectors is not None:
        feeds = ShardedFeed(
            topology, settings.collectors, tls=settings.tls, on_wait=LOGGER.warning, on_answer=LOGGER.info
        )
        collector = await stack.enter_async_context(feeds)
    return path_server, collector


_Sharing: TypeAlias = tuple[ReportOwners, AsyncGenerator[tuple[LiveCollector, ...], None]]


def _sharing(settings: DaemonSettings, topology: Topology, daemon: Daemon) -> _Sharing | None:
    """Return what has switches report to several collectors, and these; None for one collector."""
    if settings.collectors is None:
        return None
    return ReportOwners(topology, daemon.report_to), live_collectors(settings.collectors, LOGGER.warning)


def _families(daemon: Daemon, load: DaemonLoad, jobs: JobService | None) -> Iterator[Metric]:
    yield from status_metrics.families(daemon.status(load))
    if jobs is not None:
        yield from job_metrics.families(jobs.rows())


async def _work(
    daemon: Daemon,
    service: JobService | None,
    collector: FeedClient | ShardedFeed | None,
    subscribers: Sequence[Subscriber] = (),
    watchers: Sequence[PortWatcher] = (),
    *,
    lease: Lease | None = None,
    sharing: _Sharing | None = None,
) -> None:
    """Control, watch ports, serve jobs and report to the collector and to `subscribers`, until cancelled.

    The first failure ends it all.
    """
    async with asyncio.TaskGroup() as group:
        if sharing is not None:
            owners, live = sharing
            group.create_task(owners.follow(live))
            # Before they are known, switches whose collector is right would be sent to another.
            await owners.known.wait()
        group.create_task(daemon.run())
        for watcher in watchers:
            group.create_task(watcher.run())
        if service is not None:
            group.create_task(service.run())
        # One that stands by knows as much of the links, and leaves it to the active one to tell.
        await until_active(lease)
        for subscriber in subscribers:
            group.create_task(daemon.links.publisher.publish_to(subscriber))
        if service is not None and collector is not None:
            group.create_task(report_jobs(collector, service.notes, LOGGER.warning))


def features_of(settings: DaemonSettings, topology: Topology, more: Sequence[Owner] = ()) -> Features:
    """Return the owners of tables for the settings; raise ControllerError for impossible settings."""
    if settings.collectors is not None:
        check_sharing(topology, settings.watches)
    telemetry = Telemetry(settings.watches, settings.reporting, settings.int_domain)
    if not runs_aggregation(settings):
        return Features(topology, telemetry, routed=settings.routed_networks, more=more)
    # Random job numbers, so that packets of another daemon's jobs match no job of this one.
    return Features(
        topology,
        telemetry,
        aggregation=settings.effective_aggregation,
        newest_job=random.randrange(1 << 16),
        store=settings.store or StoreSettings(),
        routed=settings.routed_networks,
        more=more,
    )


def runs_aggregation(settings: DaemonSettings) -> bool:
    """Return whether the switches should run the program with aggregation and content."""
    return settings.effective_aggregation is not None or settings.store is not None


def program_files(settings: DaemonSettings) -> tuple[Path, Path]:
    """Return P4Info and JSON of the program that the switches should run."""
    p4info, program = fabric_program(FABRIC_AGGREGATION if runs_aggregation(settings) else FABRIC)
    return (
        p4info if settings.p4info is None else Path(settings.p4info),
        program if settings.program is None else Path(settings.program),
    )


def connector(settings: DaemonSettings, topology: Topology, lease: Lease | None = None) -> Connect:
    """Return a function that opens a session to a switch; raise ControllerError for a switch without an address.

    With a `lease`, its token is the election id, in the high half: above every id without one.
    """
    targets = settings.targets(topology)
    schema = load_schema(*program_files(settings))
    # Ids grow with each start: a new daemon need not wait until a switch notices that the previous one died.
    election_id = settings.election_id or UtcClock().now_ns() // 1000

    @asynccontextmanager
    async def connect(switch: str) -> AsyncIterator[SwitchSession]:
        session = GrpcSession(
            targets[switch],
            # A separate one for each session: it remembers the switch's version.
            copy(schema),
            tls=settings.tls,
            election_id=election_id if lease is None else lease.check() << 64,
            timeout_s=settings.retry.timeout_ns / NS_PER_S,
            permit=None if lease is None else lease.check,
        )
        try:
            await session.connect()
            yield session
        finally:
            await session.close()

    return connect


def port_watchers(settings: DaemonSettings, topology: Topology, observer: PortObserver) -> list[PortWatcher]:
    """Return the watchers of each switch's ports, which also set their hellos to neighbours."""
    hellos = wanted_hellos(topology, settings.hellos)
    retry, rng, turns = settings.retry, random.Random(), connection_turns()
    return [
        PortWatcher(
            PortTarget(name, target.address, hellos[name], settings.tls),
            observer,
            Backoff(retry.first_wait_ns, retry.longest_wait_ns, rng),
            turns=turns,
        )
        for name, target in settings.targets(topology).items()
    ]


async def nothing() -> AsyncIterator[RouteSet]:
    """Yield one empty set: without a path server all traffic follows the base routes."""
    yield RouteSet(0, ())


def reload_of(daemon: Daemon) -> Reload[DaemonSettings]:
    """Return the reload of a daemon by SIGHUP: its telemetry and its networks."""
    return _reload_of(lambda settings: _configure(daemon, settings))


def _reload_of(configure: Callable[[DaemonSettings], None]) -> Reload[DaemonSettings]:
    def apply(settings: DaemonSettings) -> str:
        configure(settings)
        return "telemetry settings reloaded"

    return Reload(apply, "keeping the previous telemetry settings", keys=RELOADED)


def _configure(daemon: Daemon, settings: DaemonSettings) -> None:
    if settings.collectors is not None:
        check_sharing(daemon.features.topology, settings.watches)
    daemon.configure(settings.watches, settings.reporting, settings.int_domain, settings.routed_networks)


async def _serve(settings: DaemonSettings, lifecycle: Lifecycle[DaemonSettings]) -> None:
    topology, ready = load_topology(settings.topology), ready_once(lifecycle.ready)
    present: list[Daemon] = []
    in_force = settings

    def on_daemon(daemon: Daemon) -> None:
        present[:] = [daemon]

    def configure(reloaded: DaemonSettings) -> None:
        nonlocal in_force
        _configure(present[0], reloaded)
        in_force = replace(settings, **{key: getattr(reloaded, key) for key in RELOADED})

    async def serve_once(lease: Lease | None, stop: asyncio.Event) -> None:
        await serve(in_force, topology, MonotonicClock(), stop, on_ready=ready, on_daemon=on_daemon, lease=lease)

    lifecycle.reload(_reload_of(configure))
    member = Member("controller", settings.listen or "", LOGGER)
    await serve_in_pair(settings.standby, member, serve_once, lifecycle.stop)


PROCESS: Final = Process("controller", DaemonSettings, _serve)
load_settings: Final = PROCESS.load_settings
