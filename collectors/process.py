"""The collector as a process: reports in by UDP, snapshots and records out by the feed, and into a history."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.collector import Collector
from collectors.events.rules import RuleSettings
from collectors.events.service import EventService
from collectors.feed import FeedServer, FeedSettings
from collectors.history.settings import HistorySettings
from collectors.receiver import ReceiverSettings, ReportReceiver
from collectors.settings import CollectorSettings
from collectors.stopping import stop_on_signals
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict, load
from dataplane.errors import MillraceError
from dataplane.fabric.topology import Topology
from dataplane.fabric.topology_file import load_topology

if TYPE_CHECKING:
    from collectors.history.recorder import HistoryRecorder

LOGGER = logging.getLogger("millrace.collector")


class CollectorProcessSettings(Strict, frozen=True):
    """A collector process's settings file."""

    topology: str
    """The topology: a file, the name of one that comes along, or a family such as fat-tree:k=4."""

    receiver: ReceiverSettings = ReceiverSettings()
    """Where reports come in."""

    feed: FeedSettings = FeedSettings()
    """Where snapshots and records go out."""

    collector: CollectorSettings = CollectorSettings()
    """How reports become the network's state."""

    events: RuleSettings = RuleSettings()
    """Which figures raise events; SIGHUP reads the rules again."""

    history: HistorySettings | None = None
    """What is written to files, and for how long; null: nothing."""


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
    """Collect until SIGINT or SIGTERM; `on_ready` gets one line: where reports come in and where the feed is.

    SIGHUP puts the rules of `reload` in force; `on_reload` gets one line, what became of that.
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
    stop, again = stop_on_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
    reloading = None if reload is None else Reloading(again, reload, on_reload)
    await serve(settings, topology, MonotonicClock(), stop, on_ready, reloading=reloading)


@dataclass(frozen=True, slots=True)
class Reloading:
    """Where new rules come from whenever `again` is set, and who is told what became of them."""

    again: asyncio.Event
    read: Reload
    tell: Callable[[str], None] | None = None

    async def run(self, events: EventService) -> None:
        """Put the rules in force each time; rules that do not read leave those in force as they are."""
        while True:
            await self.again.wait()
            self.again.clear()
            try:
                rules = self.read().events.rules
            except MillraceError as error:
                self._say(f"rules stay as they are: {error}")
                continue
            events.replace(rules)
            self._say(f"{len(rules)} rules in force")

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
    """Collect until `stop` is set; raise CollectorError when port, feed's address or history cannot be had."""
    collector = Collector(topology, clock, settings.collector)
    events = EventService(collector, settings.events)
    with ExitStack() as undo:
        history = _history(settings, collector, topology, events, wall_ns)
        if history is not None:
            undo.callback(history.close)
        receiver = ReportReceiver(collector, settings.receiver, clock)
        undo.callback(receiver.close)
        feed = FeedServer(collector, settings.feed, events)
        undo.pop_all()
    await feed.start()
    tasks = [asyncio.create_task(work) for work in _works(receiver, events, history, reloading)]
    stopping = asyncio.create_task(stop.wait())
    try:
        if on_ready is not None:
            on_ready(f"reports on UDP port {receiver.udp_port}, feed at {feed.address}")
        await asyncio.wait((*tasks, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, stopping):
            task.cancel()
        outcomes = await asyncio.gather(*tasks, stopping, return_exceptions=True)
        await feed.stop()
    failed = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
    if failed is not None:
        raise failed


def _works(
    receiver: ReportReceiver, events: EventService, history: HistoryRecorder | None, reloading: Reloading | None
) -> Iterator[Coroutine[None, None, None]]:
    """Yield what the process does at the same time; none of it ends by itself."""
    yield receiver.run()
    yield events.run()
    if history is not None:
        yield history.run()
    if reloading is not None:
        yield reloading.run(events)


def _history(
    settings: CollectorProcessSettings,
    collector: Collector,
    topology: Topology,
    events: EventService,
    wall_ns: Callable[[], int],
) -> HistoryRecorder | None:
    if settings.history is None:
        return None
    from collectors.history.recorder import HistoryRecorder  # noqa: PLC0415 - only who keeps a history waits for Arrow

    recorder = HistoryRecorder(collector, topology, settings.history, wall_ns, LOGGER.warning)
    events.subscribe(recorder.add_events)
    return recorder
