"""The collector as a process: reports in by UDP, snapshots and records out by the feed, and into a history."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from collectors.collector import Collector
from collectors.contests import ContestWatch
from collectors.errors import CollectorError
from collectors.events.rules import RuleSettings
from collectors.events.service import EventService
from collectors.events.store import EventStore
from collectors.exporters.settings import GnmiSettings, OtlpSettings, SflowSettings
from collectors.feed.server import FeedServer, FeedSettings, MoveSink
from collectors.history.settings import HistorySettings
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.ingest.silence import watch_for_silence
from collectors.metrics.settings import MetricsSettings
from collectors.overload import monitor_of
from collectors.settings import CollectorSettings
from collectors.shards.settings import ShardSettings
from collectors.stamp.settings import StampSettings
from collectors.values import FlowMove
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict
from dataplane.config.suggestions import did_you_mean
from dataplane.daemon import Daemon, Lifecycle, Reload
from dataplane.running import ready_promptly
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

if TYPE_CHECKING:
    from collectors.shards.keeper import ShardKeeper

LOGGER = logging.getLogger("millrace.collector")


RELOADED: Final = ("events.rules",)
"""Keys that SIGHUP applies."""


class CollectorProcessSettings(Strict, frozen=True):
    """A collector process's settings file."""

    topology: str
    """The topology: a file, the name of one that comes along, or a family such as fat-tree:k=4."""

    receiver: ReceiverSettings = ReceiverSettings()
    """Receiver of reports."""

    feed: FeedSettings = FeedSettings()
    """Feed that serves snapshots and records."""

    collector: CollectorSettings = CollectorSettings()
    """Processing of reports into the network's state."""

    events: RuleSettings = RuleSettings()
    """Rules that raise events; SIGHUP reloads them."""

    gnmi: GnmiSettings | None = None
    """OpenConfig devices, whose interface counters complete the state of telemetry; null subscribes to none."""

    otlp: OtlpSettings | None = None
    """Exporters of OTLP metrics, whose interface counters complete the state of telemetry; null receives none."""

    sflow: SflowSettings | None = None
    """sFlow agents, whose state completes that of telemetry; null receives none."""

    stamp: StampSettings | None = None
    """Probes to STAMP reflectors, whose round trips give delays of links without telemetry; null sends none."""

    history: HistorySettings | None = None
    """History written to files; null writes nothing."""

    metrics: MetricsSettings | None = None
    """Endpoint that Prometheus scrapes; null disables it."""

    shard: ShardSettings | None = None
    """This collector's lease among those of several, which share the switches; null: it has all of them."""


async def serve(
    settings: CollectorProcessSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
    *,
    on_events: Callable[[EventService], None] | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Collect until `stop` is set; raise CollectorError for an unusable port, address or folder.

    `on_events` gets the service of the rules, which may be replaced while it runs.
    """
    collector = Collector(topology, clock, settings.collector)
    with ExitStack() as undo:
        store = None if settings.events.database is None else EventStore(settings.events.database)
        if store is not None:
            undo.callback(store.close)
        events = EventService(collector, settings.events, store=store, wall_ns=wall_ns)
        receiver = ReportReceiver(collector, settings.receiver, clock)
        undo.callback(receiver.close)
        extras, take_moves = _extras(settings, collector, events, receiver, topology, clock, wall_ns, undo)
        feed = FeedServer(collector, settings.feed, events, take_moves)
        keeper = _keeper(settings, collector, receiver, feed, topology, undo)
        if keeper is not None:
            extras.append(keeper)
        undo.pop_all()
    await feed.start()
    try:
        if on_events is not None:
            on_events(events)
        if on_ready is not None:
            where = [f"reports on UDP port {receiver.udp_port}", *map(str, extras), f"feed at {feed.address}"]
            on_ready(", ".join(where))
        contests = ContestWatch(collector, topology, LOGGER.warning)
        monitor = monitor_of(collector, receiver, LOGGER)
        works = [receiver.run(), events.run(), contests.run(), monitor.run(), *(extra.run() for extra in extras)]
        host = "the collector's host" if topology.collector is None else topology.collector.host
        silence = watch_for_silence(collector.counters, receiver.udp_port, host, warn=LOGGER.warning, tell=LOGGER.info)
        await _work_until(_end(stop, keeper), [*works, _then_wait(silence, stop)])
    finally:
        await feed.stop()
        if store is not None:
            store.close()


async def _work_until(end: Coroutine[None, None, None], works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run several tasks concurrently until `end` returns or one of them fails; raise its error."""
    tasks = [asyncio.create_task(work) for work in (*works, end)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    failed = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
    if failed is not None:
        raise failed


async def _then_wait(work: Coroutine[None, None, None], stop: asyncio.Event) -> None:
    """Run a task that may end before `stop` is set."""
    await work
    await stop.wait()


async def _end(stop: asyncio.Event, keeper: ShardKeeper | None) -> None:
    """Return when the process should end: one of several collectors leaves first, and receives until others do."""
    await stop.wait()
    if keeper is not None:
        await keeper.leave()


def _keeper(  # noqa: PLR0917 - what a collector has
    settings: CollectorProcessSettings,
    collector: Collector,
    receiver: ReportReceiver,
    feed: FeedServer,
    topology: Topology,
    undo: ExitStack,
) -> ShardKeeper | None:
    """Return what keeps the lease of one of several collectors, None for one that has all switches."""
    shard = settings.shard
    if shard is None:
        return None
    from collectors.shards.keeper import ShardKeeper  # noqa: PLC0415
    from collectors.shards.membership import Announcement  # noqa: PLC0415

    if shard.host not in topology.host:
        raise CollectorError(
            f"shard.host: topology {topology.name} has no host {shard.host}{did_you_mean(shard.host, topology.host)}"
        )
    me = Announcement(
        shard.name or shard.host, shard.host, shard.udp_port or receiver.udp_port, shard.feed or feed.address
    )
    keeper = ShardKeeper(collector, topology, shard, me, LOGGER.warning)
    undo.callback(keeper.close)
    return keeper


class _Service(Protocol):
    """Optional part of a collector that runs until cancelled."""

    async def run(self) -> None:
        """Run until cancelled."""
        ...

    def close(self) -> None:
        """Release its resources, if it never ran."""
        ...


def _extras(  # noqa: PLR0917 - what a collector has
    settings: CollectorProcessSettings,
    collector: Collector,
    events: EventService,
    receiver: ReportReceiver,
    topology: Topology,
    clock: Clock,
    wall_ns: Callable[[], int],
    undo: ExitStack,
) -> tuple[list[_Service], MoveSink]:
    """Return the optional parts, and what takes decisions about paths; `undo` closes them.

    Libraries of unused ones are not loaded.
    """
    extras: list[_Service] = []
    if settings.gnmi is not None:
        from collectors.exporters.gnmi_sessions import GnmiReceiver  # noqa: PLC0415

        gnmi = GnmiReceiver(collector, topology, settings.gnmi, clock)
        extras.append(gnmi)
        undo.callback(gnmi.close)
    if settings.otlp is not None:
        from collectors.exporters.otlp_service import OtlpReceiver  # noqa: PLC0415

        otlp = OtlpReceiver(collector, topology, settings.otlp, clock)
        extras.append(otlp)
        undo.callback(otlp.close)
    if settings.sflow is not None:
        from collectors.exporters.service import SflowReceiver  # noqa: PLC0415

        sflow = SflowReceiver(collector, topology, settings.sflow, clock)
        extras.append(sflow)
        undo.callback(sflow.close)
    if settings.stamp is not None:
        from collectors.stamp.sender import StampSender  # noqa: PLC0415

        stamp = StampSender(collector, topology, settings.stamp, clock)
        extras.append(stamp)
        undo.callback(stamp.close)
    take_moves: MoveSink = _forget
    if settings.history is not None:
        from collectors.history.recorder import HistoryRecorder  # noqa: PLC0415

        history = HistoryRecorder(collector, topology, settings.history, wall_ns, LOGGER.warning)
        events.subscribe(history.add_events)
        events.subscribe_notes(history.add_note)
        take_moves = history.add_moves
        collector.subscribe_drops(history.add_drops)
        extras.append(history)
        undo.callback(history.close)
        if settings.history.store is not None:
            from collectors.history.objects.service import LongHistory  # noqa: PLC0415

            store, shard = settings.history.store, settings.shard
            name = store.shard if shard is None else shard.name or shard.host
            leases = store.leases or (None if shard is None else shard.leases)
            folder = Path(settings.history.folder)
            long = LongHistory(folder, store, name, leases, collector.counters, LOGGER.warning)
            extras.append(long)
            undo.callback(long.close)
    if settings.metrics is not None:
        from collectors.metrics.service import MetricsService  # noqa: PLC0415

        statistics = receiver.nic_statistics
        metrics = MetricsService(collector, topology, events, settings.metrics, nic_statistics=statistics)
        extras.append(metrics)
        undo.callback(metrics.close)
    return extras, take_moves


def _forget(_: Sequence[FlowMove]) -> None:
    """Take decisions about paths where there is no history."""


def reload_of(events: EventService, say: Callable[[str], None]) -> Reload[CollectorProcessSettings]:
    """Return the reload of a collector by SIGHUP: its rules. `say` gets one line with the outcome."""

    def replace(settings: CollectorProcessSettings) -> str:
        events.reload(settings.events.rules)
        count, changed = len(events.rules), len(events.state.changes)
        kept = f", with {changed} {'change' if changed == 1 else 'changes'} made at run time" if changed else ""
        return f"{count} {'rule' if count == 1 else 'rules'} in force{kept}"

    return Reload(replace, "keeping the previous rules", keys=RELOADED, say=say)


async def _serve(settings: CollectorProcessSettings, lifecycle: Lifecycle[CollectorProcessSettings]) -> None:
    def on_events(events: EventService) -> None:
        lifecycle.reload(reload_of(events, lifecycle.say))

    topology = load_topology(settings.topology)
    await serve(
        settings, topology, MonotonicClock(), lifecycle.stop, ready_promptly(lifecycle.ready), on_events=on_events
    )


DAEMON: Final = Daemon("collector", CollectorProcessSettings, _serve)
load_settings: Final = DAEMON.load_settings
