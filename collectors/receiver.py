"""Reports from a UDP socket to a collector, in real time: the socket is emptied at once, the work is done in turns."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.settings import Positive
from dataplane.config import Strict

SO_RXQ_OVFL: Final = 40
"""Linux: with each datagram comes how many the socket's full buffer has cost so far (socket(7)); not in `socket`."""

MAX_DATAGRAM: Final = 65_535


class ReceiverSettings(Strict, frozen=True):
    """Where reports come in, and how many may wait."""

    address: str = "0.0.0.0"  # noqa: S104 - reports come from every switch
    """The local IPv4 or IPv6 address to listen on."""

    udp_port: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """The UDP port to listen on; null takes the collector's, 0 a free one."""

    queue_reports: Positive = 65_536
    """How many reports may wait for the collector; those beyond are dropped and counted."""

    burst_reports: Positive = 256
    """How many reports are read, or worked on, before anything else has its turn."""

    socket_buffer_bytes: Positive = 4_194_304
    """The kernel's buffer that is asked for; the kernel may grant less (net.core.rmem_max)."""


class ReportReceiver:
    """A UDP socket, a bounded queue and a collector; `run` until cancelled."""

    def __init__(self, collector: Collector, settings: ReceiverSettings | None = None) -> None:
        self._collector = collector
        self._settings = settings or ReceiverSettings()
        self._queue: deque[tuple[bytes, object]] = deque()
        self._arrived = asyncio.Event()
        self._overflow = 0
        port = self._settings.udp_port
        self._socket = _bind(self._settings, collector.report_udp_port if port is None else port)

    @property
    def udp_port(self) -> int:
        """The port that the socket is bound to."""
        port: int = self._socket.getsockname()[1]
        return port

    async def run(self) -> None:
        """Receive until cancelled; the socket is closed at the end."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self.drain)
        try:
            while True:
                await self._arrived.wait()
                self.work()
                await asyncio.sleep(0)
        finally:
            loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def close(self) -> None:
        """Close the socket of a receiver that never ran."""
        self._socket.close()

    def drain(self) -> None:
        """Move a burst of datagrams from the socket to the queue; those that find it full are dropped and counted."""
        for _ in range(self._settings.burst_reports):
            try:
                payload, ancillary, _, source = self._socket.recvmsg(MAX_DATAGRAM, socket.CMSG_SPACE(4))
            except (BlockingIOError, InterruptedError):
                return
            self._count_overflow(ancillary)
            self.offer(payload, source)

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

    def _count_overflow(self, ancillary: Iterable[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL and len(data) >= 4:
                total = struct.unpack("=I", data[:4])[0]
                self._collector.counters[Count.KERNEL_QUEUE_FULL] += (total - self._overflow) & 0xFFFF_FFFF
                self._overflow = total


def _bind(settings: ReceiverSettings, udp_port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    # The kernel cuts what is more than it grants, but takes no number of more than 31 bits.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, min(settings.socket_buffer_bytes, 0x7FFF_FFFF))
    # A kernel without this option only lacks the counter.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    try:
        sock.bind((settings.address, udp_port))
    except (OSError, UnicodeError) as error:
        sock.close()
        where = f"UDP {settings.address} port {udp_port}"
        cause = getattr(error, "strerror", None) or error
        raise CollectorError(f"cannot receive reports on {where}: {cause}") from error
    return sock
