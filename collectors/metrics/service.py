"""Metrics of a running collector, read in the scrapers' threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import CollectorRegistry, ProcessCollector

from collectors.collector import Collector
from collectors.errors import CollectorError
from collectors.events.service import EventService
from collectors.metrics.families import Reading, StateCollector
from collectors.metrics.settings import MetricsSettings
from dataplane.metrics_server import MetricsServer
from dataplane.nic import NicStatistics
from dataplane.nic.metrics import NicCollector
from dataplane.topology.values import Topology


class MetricsService:
    """Serves a collector's metrics; `run` until cancelled.

    `nic_statistics` reads those of the device that reports are polled from. Raises CollectorError if the address cannot
    be had.
    """

    def __init__(
        self,
        collector: Collector,
        topology: Topology,
        events: EventService,
        settings: MetricsSettings,
        *,
        nic_statistics: Callable[[], NicStatistics] | None = None,
    ) -> None:
        self._collector, self._events = collector, events
        registry = CollectorRegistry(auto_describe=False)
        registry.register(StateCollector(topology, self._scrape))
        if nic_statistics is not None:
            registry.register(NicCollector(nic_statistics))
        ProcessCollector(registry=registry)
        try:
            self._server = MetricsServer(registry, settings.address, settings.port)
        except OSError as error:
            where = f"{settings.address}:{settings.port}"
            raise CollectorError(f"metrics cannot be served at {where}: {error.strerror}") from error

    @property
    def port(self) -> int:
        """The TCP port, also where 0 asked for any."""
        return self._server.port

    def __str__(self) -> str:
        return f"metrics on TCP port {self.port}"

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            # A scrape may take a while, so the loop must not wait for it.
            await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stop serving; for a service that never ran."""
        self._server.close()

    def _scrape(self) -> Reading:
        """Read in the scraper's thread, so that the event loop is free for other work."""
        rules = tuple(rule.name for rule in self._events.rules)
        return Reading(self._collector.snapshot(), self._collector.status(), self._events.open_events(), rules)
