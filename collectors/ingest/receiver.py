"""Reception of reports in real time: a thread takes the source's reports in turns of bounded time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Final

from msgspec import Meta

from collectors.collector import Collector
from collectors.counters import Count
from collectors.ingest.report_sources import NicSource, ReportSource, SocketSource
from collectors.ingest.turns import NativeTurns, SourceTurns, Turns
from collectors.settings import Positive
from dataplane.clock import Clock, MonotonicClock
from dataplane.config import Strict
from dataplane.linux import SocketBacklog
from dataplane.nic import NicStatistics

SETTLE_S: Final = 0.02
"""Interval at which the event loop updates the counts of received reports."""
BACKLOG_NS: Final = 1_000_000_000
"""The span over which the longest backlog is reported."""
THREAD: Final = "reports"
"""The name of the thread that receives."""


class ReceiverSettings(Strict, frozen=True):
    """Settings of the receiver: where reports come in, and how many may wait."""

    address: str = "0.0.0.0"  # noqa: S104 - reports come from every switch
    """The local IPv4 or IPv6 address to listen on."""

    udp_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """The UDP port to listen on; null takes the collector's, 0 a free one."""

    interface: str | None = None
    """The network device whose queues are polled for reports (root); null for a UDP socket."""

    burst_reports: Positive = 16_384
    """About how many reports are taken at a time from what Python reads: a device's queues, or any source with the
    reference core; time bounds it as well."""

    socket_buffer_bytes: Positive = 33_554_432
    """Requested size of the kernel's buffer for waiting reports; without root it grants at most net.core.rmem_max."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """Backlog of a receiver's socket: the most kernel memory in use, in bytes, and the longest wait of a report.

    All zeros for a device, whose statistics include its backlog.
    """

    nbytes: int = 0
    room_bytes: int = 0
    oldest_ns: int = 0


class ReportReceiver:
    """A source of reports and a collector; `run` until cancelled, or `drain` it by hand.

    `wall_ns` is the time by which the kernel stamps datagrams.
    """

    def __init__(
        self,
        collector: Collector,
        settings: ReceiverSettings | None = None,
        clock: Clock | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._collector = collector
        self._settings = settings or ReceiverSettings()
        self._lost = self._malformed = 0
        clock = clock or MonotonicClock()
        self._source = _open(self._settings, collector.report_udp_port, clock, wall_ns)
        self._turns = self._open_turns(clock, wall_ns)
        self._meter = _BacklogMeter()
        self._is_stopping = False
        self._failure: BaseException | None = None

    def _open_turns(self, clock: Clock, wall_ns: Callable[[], int]) -> Turns:
        if isinstance(self._source, SocketSource):
            reception = self._collector.open_reception(self._source.fileno(), clock, wall_ns)
            if reception is not None:
                return NativeTurns(self._collector, reception, self._source.udp_port)
        return SourceTurns(self._collector, self._source, self._settings.burst_reports)

    @property
    def udp_port(self) -> int:
        """The port that receives reports."""
        return self._source.udp_port

    @property
    def nic_statistics(self) -> Callable[[], NicStatistics] | None:
        """Function that reads the statistics of the polled device, from any thread; None if no device is polled."""
        return self._source.read_statistics if isinstance(self._source, NicSource) else None

    @property
    def backlog(self) -> Backlog:
        """The longest backlog in the last complete second; from any thread."""
        return self._meter.backlog

    def fileno(self) -> int:
        """Return a descriptor that is readable when reports have arrived."""
        return self._source.fileno()

    async def run(self) -> None:
        """Receive until cancelled, then close the source; raise errors of the thread here."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def work() -> None:
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001 - raised where the process waits for it
                self._failure = error
            loop.call_soon_threadsafe(ended.set)

        thread = threading.Thread(target=work, name=THREAD, daemon=True)
        thread.start()
        waiting = asyncio.ensure_future(ended.wait())
        try:
            while not ended.is_set():
                await asyncio.wait((waiting,), timeout=SETTLE_S)
                self._turns.settle()
                self._count_losses()
        finally:
            waiting.cancel()
            # Before the bell rings, or the thread would go on to wait again.
            self._is_stopping = True
            self._turns.wake()
            thread.join()
            self.close()
            if self._failure is not None:
                raise self._failure

    def _work(self) -> None:
        while not self._is_stopping:
            self._turns.take(waits=True)

    def close(self) -> None:
        """Close the source."""
        self._turns.close()
        self._source.close()
        self._count_losses()

    def drain(self) -> None:
        """Pass the source's reports to the collector, for at most one turn."""
        self._turns.take(waits=False)
        self._count_losses()

    def _count_losses(self) -> None:
        if isinstance(self._source, SocketSource):
            self._meter.note(self._source.read_backlog(), self._turns.take_oldest_ns())
        lost, malformed = self._source.lost, self._source.malformed
        if isinstance(self._turns, NativeTurns):
            malformed += self._turns.cut
        # The source counts from its start, so only the difference is new.
        self._collector.counters[Count.KERNEL_QUEUE_FULL] += lost - self._lost
        self._collector.counters[Count.RECEIVE_MALFORMED] += malformed - self._malformed
        self._lost, self._malformed = lost, malformed


class _BacklogMeter:
    """Keeps the longest backlog, by spans of `BACKLOG_NS`."""

    def __init__(self) -> None:
        self._clock = MonotonicClock()
        self._most = Backlog()
        self._due_ns = self._clock.now_ns() + BACKLOG_NS
        self.backlog = Backlog()

    def note(self, waiting: SocketBacklog | None, oldest_ns: int) -> None:
        """Take the current backlog; called after each turn."""
        most = self._most
        if waiting is not None:
            most = replace(most, nbytes=max(most.nbytes, waiting.waiting_bytes), room_bytes=waiting.room_bytes)
        self._most = replace(most, oldest_ns=max(most.oldest_ns, oldest_ns))
        if self._clock.now_ns() >= self._due_ns:
            self.backlog, self._most = self._most, Backlog()
            self._due_ns = self._clock.now_ns() + BACKLOG_NS


def _open(settings: ReceiverSettings, own_port: int, clock: Clock, wall_ns: Callable[[], int]) -> ReportSource:
    udp_port = own_port if settings.udp_port is None else settings.udp_port
    if settings.interface is not None:
        return NicSource(settings.interface, settings.address, udp_port, clock)
    return SocketSource(settings.address, udp_port, settings.socket_buffer_bytes, clock, wall_ns)
