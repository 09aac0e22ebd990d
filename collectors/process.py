"""The collector as a process: reports in by UDP, snapshots and records out by the feed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from collectors.collector import Collector
from collectors.feed import FeedServer, FeedSettings
from collectors.receiver import ReceiverSettings, ReportReceiver
from collectors.settings import CollectorSettings
from collectors.stopping import stop_on_signals
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict, load
from dataplane.fabric.topology import Topology
from dataplane.fabric.topology_file import load_topology


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


def load_settings(path: Path) -> CollectorProcessSettings:
    """Return a settings file's content; raise ConfigError with file, line and key."""
    return load(path, CollectorProcessSettings)


def run(settings: CollectorProcessSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Collect until SIGINT or SIGTERM; `on_ready` gets one line: where reports come in and where the feed is."""
    topology = load_topology(settings.topology)
    asyncio.run(_until_signalled(settings, topology, on_ready))


async def _until_signalled(
    settings: CollectorProcessSettings, topology: Topology, on_ready: Callable[[str], None] | None
) -> None:
    stop = stop_on_signals()
    await serve(settings, topology, MonotonicClock(), stop, on_ready)


async def serve(
    settings: CollectorProcessSettings,
    topology: Topology,
    clock: Clock,
    stop: asyncio.Event,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Collect until `stop` is set; raise CollectorError when the port or the feed's address cannot be had."""
    collector = Collector(topology, clock, settings.collector)
    receiver = ReportReceiver(collector, settings.receiver, clock)
    try:
        feed = FeedServer(collector, settings.feed)
    except BaseException:
        receiver.close()
        raise
    await feed.start()
    receiving = asyncio.create_task(receiver.run())
    stopping = asyncio.create_task(stop.wait())
    try:
        if on_ready is not None:
            on_ready(f"reports on UDP port {receiver.udp_port}, feed at {feed.address}")
        await asyncio.wait((receiving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (receiving, stopping):
            task.cancel()
        outcomes = await asyncio.gather(receiving, stopping, return_exceptions=True)
        await feed.stop()
    if isinstance(outcomes[0], Exception):
        raise outcomes[0]
