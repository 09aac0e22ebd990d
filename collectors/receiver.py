"""Reports to a collector, in real time: their source is emptied at once, the work is done in turns."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated

from msgspec import Meta

from collectors.collector import Collector
from collectors.counters import Count
from collectors.report_sources import NicSource, ReportSource, SocketSource
from collectors.settings import Positive
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict


class ReceiverSettings(Strict, frozen=True):
    """Where reports come in, and how many may wait."""

    address: str = "0.0.0.0"  # noqa: S104 - reports come from every switch
    """The local IPv4 or IPv6 address to listen on."""

    udp_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """The UDP port to listen on; null takes the collector's, 0 a free one."""

    interface: str | None = None
    """The network device whose queues are polled for reports (root); null for a UDP socket."""

    queue_reports: Positive = 65_536
    """How many reports may wait for the collector; those beyond are dropped and counted."""

    burst_reports: Positive = 256
    """How many reports are read, or worked on, before anything else has its turn."""

    socket_buffer_bytes: Positive = 4_194_304
    """The kernel's buffer that is asked for; the kernel may grant less (net.core.rmem_max)."""


class ReportReceiver:
    """A source of reports, a bounded queue and a collector; `run` until cancelled."""

    def __init__(
        self, collector: Collector, settings: ReceiverSettings | None = None, clock: Clock | None = None
    ) -> None:
        self._collector = collector
        self._settings = settings or ReceiverSettings()
        self._queue: deque[tuple[bytes, object]] = deque()
        self._arrived = asyncio.Event()
        self._lost = self._malformed = 0
        self._source = _open(self._settings, collector.report_udp_port, clock or MonotonicClock())

    @property
    def udp_port(self) -> int:
        """The port that reports come to."""
        return self._source.udp_port

    async def run(self) -> None:
        """Receive until cancelled; the source is closed at the end."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._source.fileno(), self.drain)
        try:
            while True:
                await self._arrived.wait()
                self.work()
                await asyncio.sleep(0)
        finally:
            loop.remove_reader(self._source.fileno())
            self.close()

    def close(self) -> None:
        """Close the source."""
        self._source.close()
        self._count_losses()

    def drain(self) -> None:
        """Move a burst of datagrams from the source to the queue; those that find it full are dropped and counted."""
        for payload, sender in self._source.read(self._settings.burst_reports):
            self.offer(payload, sender)
        self._count_losses()

    def offer(self, payload: bytes, source: object) -> None:
        """Queue one report, or drop and count it."""
        if len(self._queue) >= self._settings.queue_reports:
            self._collector.counters[Count.RECEIVE_QUEUE_FULL] += 1
            return
        self._queue.append((payload, source))
        self._arrived.set()

    def work(self) -> None:
        """Give the collector a burst from the queue."""
        for _ in range(min(self._settings.burst_reports, len(self._queue))):
            self._collector.receive(*self._queue.popleft())
        if not self._queue:
            self._arrived.clear()

    def _count_losses(self) -> None:
        lost, malformed = self._source.lost, self._source.malformed
        self._collector.counters[Count.KERNEL_QUEUE_FULL] += lost - self._lost
        self._collector.counters[Count.RECEIVE_MALFORMED] += malformed - self._malformed
        self._lost, self._malformed = lost, malformed


def _open(settings: ReceiverSettings, own_port: int, clock: Clock) -> ReportSource:
    udp_port = own_port if settings.udp_port is None else settings.udp_port
    if settings.interface is not None:
        return NicSource(settings.interface, settings.address, udp_port, clock)
    return SocketSource(settings.address, udp_port, settings.socket_buffer_bytes)
