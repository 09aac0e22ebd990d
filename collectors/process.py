"""The collector as a process: reports in by UDP, snapshots and records out by the feed, and into a history."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from collectors.collector import Collector
from collectors.contests import ContestWatch
from collectors.events.rules import RuleSettings
from collectors.events.service import EventService
from collectors.feed.server import FeedServer, FeedSettings
from collectors.history.settings import HistorySettings
from collectors.ingest.receiver import ReceiverSettings, ReportReceiver
from collectors.metrics.settings import MetricsSettings
from collectors.overload import monitor_of
from collectors.settings import CollectorSettings
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict, load
from dataplane.config.changes import not_in_force
from dataplane.errors import MillraceError
from dataplane.running import stop_on_signals
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

LOGGER = logging.getLogger("millrace.collector")


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

    history: HistorySettings | None = None
    """History written to files; null writes nothing."""

    metrics: MetricsSettings | None = None
    """Endpoint that Prometheus scrapes; null disables it."""


Reload = Callable[[], CollectorProcessSettings]


def load_settings(path: Path) -> CollectorProcessSettings:
    """Return a settings file's content; raise ConfigError with file, line and key."""
    return load(path, CollectorProcessSettings)


def run(
    settings: CollectorProcessSettings,
    on_ready: Callable[[str], None] | None = None,
    *,
    reload: Reload | None = None,
    on_reload: Callable[[str], None] | None = None,
) -> None:
    """Collect until SIGINT or SIGTERM; `on_ready` gets one line: the addresses of reports and of the feed.

    SIGHUP applies the rules of `reload`; `on_reload` gets one line with the outcome.
    """
    topology = load_topology(settings.topology)
    asyncio.run(_until_signalled(settings, topology, on_ready, reload, on_reload))


async def _until_signalled(
    settings: CollectorProcessSettings,
    topology: Topology,
    on_ready: Callable[[str], None] | None,
    reload: Reload | None,
    on_reload: Callable[[str], None] | None,
) -> None:
    again = asyncio.Event()
    stop = stop_on_signals(None if reload is None else again.set)
    reloading = None if reload is None else Reloading(settings, again, reload, on_reload)
    await serve(settings, topology, MonotonicClock(), stop, on_ready, reloading=reloading)


@dataclass(frozen=True, slots=True)
class Reloading:
    """Reloading of rules whenever `again` is set: the source of new rules, and where to report the result.

    `settings` are those that the collector started with; all except the rules stay in force until it ends.
    """

    settings: CollectorProcessSettings
    again: asyncio.Event
    read: Reload
    tell: Callable[[str], None] | None = None

    async def run(self, events: EventService) -> None:
        """Apply the rules each time; rules that cannot be read leave the current ones in place."""
        while True:
            await self.again.wait()
            self.again.clear()
            try:
                found = self.read()
            except MillraceError as error:
                self._say(f"rules stay as they are: {error}")
                continue
            rules = found.events.rules
            events.replace(rules)
            self._say(f"{len(rules)} {'rule' if len(rules) == 1 else 'rules'} in force")
            waiting = not_in_force(self.settings, found, reloaded=("events.rules",))
            if waiting:
                self._say(waiting)

    def _say(self, line: str) -> None:
        if self.tell is not None:
            self.tell(line)


async def serve(
    settings: CollectorProcessSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
    *,
    reloading: Reloading | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Collect until `stop` is set; raise CollectorError when a port, an address or a folder cannot be had."""
    collector = Collector(topology, clock, settings.collector)
    events = EventService(collector, settings.events)
    with ExitStack() as undo:
        receiver = ReportReceiver(collector, settings.receiver, clock)
        undo.callback(receiver.close)
        extras = _extras(settings, collector, events, receiver, topology, wall_ns, undo)
        feed = FeedServer(collector, settings.feed, events)
        undo.pop_all()
    await feed.start()
    try:
        if on_ready is not None:
            where = [f"reports on UDP port {receiver.udp_port}", *map(str, extras), f"feed at {feed.address}"]
            on_ready(", ".join(where))
        contests = ContestWatch(collector, topology, LOGGER.warning)
        monitor = monitor_of(collector, receiver, LOGGER)
        works = [receiver.run(), events.run(), contests.run(), monitor.run(), *(extra.run() for extra in extras)]
        if reloading is not None:
            works.append(reloading.run(events))
        await _work_until(stop, works)
    finally:
        await feed.stop()


async def _work_until(stop: asyncio.Event, works: Iterable[Coroutine[None, None, None]]) -> None:
    """Do several things at the same time until `stop` is set or one of them fails; raise what that raised."""
    tasks = [asyncio.create_task(work) for work in (*works, _wait(stop))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    failed = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
    if failed is not None:
        raise failed


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


class _Service(Protocol):
    """Optional part of a collector that runs until cancelled."""

    async def run(self) -> None:
        """Run until cancelled."""
        ...

    def close(self) -> None:
        """Give back what was taken, if it never ran."""
        ...


def _extras(  # noqa: PLR0917 - what a collector has
    settings: CollectorProcessSettings,
    collector: Collector,
    events: EventService,
    receiver: ReportReceiver,
    topology: Topology,
    wall_ns: Callable[[], int],
    undo: ExitStack,
) -> list[_Service]:
    """Return what only some collectors do; `undo` closes it. Who does not want it does not load its libraries."""
    extras: list[_Service] = []
    if settings.history is not None:
        from collectors.history.recorder import HistoryRecorder  # noqa: PLC0415

        history = HistoryRecorder(collector, topology, settings.history, wall_ns, LOGGER.warning)
        events.subscribe(history.add_events)
        collector.subscribe_drops(history.add_drops)
        extras.append(history)
        undo.callback(history.close)
    if settings.metrics is not None:
        from collectors.metrics.service import MetricsService  # noqa: PLC0415

        statistics = receiver.nic_statistics
        metrics = MetricsService(collector, topology, events, settings.metrics, nic_statistics=statistics)
        extras.append(metrics)
        undo.callback(metrics.close)
    return extras
