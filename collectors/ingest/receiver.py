"""Reports to a collector, in real time: what its source has is taken in bursts, other work has its turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from collectors.collector import Collector
from collectors.counters import Count
from collectors.ingest.report_sources import NicSource, ReportSource, SocketSource
from collectors.settings import Positive
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict
from dataplane.nic import NicStatistics


class ReceiverSettings(Strict, frozen=True):
    """Where reports come in, and how many may wait."""

    address: str = "0.0.0.0"  # noqa: S104 - reports come from every switch
    """The local IPv4 or IPv6 address to listen on."""

    udp_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """The UDP port to listen on; null takes the collector's, 0 a free one."""

    interface: str | None = None
    """The network device whose queues are polled for reports (root); null for a UDP socket."""

    burst_reports: Positive = 16_384
    """About how many reports are taken before anything else has its turn."""

    socket_buffer_bytes: Positive = 33_554_432
    """The kernel's buffer that is asked for, where reports wait; without root it grants net.core.rmem_max at most."""


class ReportReceiver:
    """A source of reports and a collector; `run` until cancelled."""

    def __init__(
        self, collector: Collector, settings: ReceiverSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._collector = collector
        self._settings = settings or ReceiverSettings()
        self._lost = self._malformed = 0
        self._source = _open(self._settings, collector.report_udp_port, clock or MonotonicClock())

    @property
    def udp_port(self) -> int:
        """The port that reports come to."""
        return self._source.udp_port

    @property
    def nic_statistics(self) -> Callable[[], NicStatistics] | None:
        """What reads the statistics of the device that is polled, None where none is; from any thread."""
        return self._source.read_statistics if isinstance(self._source, NicSource) else None

    def fileno(self) -> int:
        """Return a descriptor that is readable when reports have come."""
        return self._source.fileno()

    async def run(self) -> None:
        """Receive until cancelled; the source is closed at the end."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._source.fileno(), self.drain)
        try:
            await asyncio.Event().wait()
        finally:
            loop.remove_reader(self._source.fileno())
            self.close()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
        self._count_losses()

    def drain(self) -> None:
        """Give the collector a burst of what the source has."""
        for payloads in self._source.read(self._settings.burst_reports):
            self._collector.receive_many(payloads)
        self._count_losses()

    def _count_losses(self) -> None:
        lost, malformed = self._source.lost, self._source.malformed
        self._collector.counters[Count.KERNEL_QUEUE_FULL] += lost - self._lost
        self._collector.counters[Count.RECEIVE_MALFORMED] += malformed - self._malformed
        self._lost, self._malformed = lost, malformed


def _open(settings: ReceiverSettings, own_port: int, clock: Clock) -> ReportSource:
    udp_port = own_port if settings.udp_port is None else settings.udp_port
    if settings.interface is not None:
        return NicSource(settings.interface, settings.address, udp_port, clock)
    return SocketSource(settings.address, udp_port, settings.socket_buffer_bytes, clock)
