"""Sources of a collector's reports: a UDP socket, or the polled queues of a network device."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from collectors.decode.payloads import Payloads
from collectors.errors import CollectorError
from collectors.ingest.datagrams import DatagramVector
from collectors.ingest.frames import FrameReader
from collectors.native.receive_state import BEHIND_NS, LATE_NS, MESSAGES
from dataplane.clock import Clock, MonotonicClock
from dataplane.errors import PortError
from dataplane.linux import DROP_ALL, SocketBacklog, ask_receive_buffer, attach_filter, read_backlog
from dataplane.nic import FlowRule, NicSettings, NicStatistics, ToConsumers, open_nic
from dataplane.nic.managed.polled import NicQueues
from dataplane.nic.managed.reporter import QueueReporter

SOL_UDP: Final = 17
UDP_GRO: Final = 104
"""Linux: datagrams of one sender and one size may be coalesced, with their size as ancillary data (udp(7))."""
FRAME_BYTES: Final = 9_238
"""The longest frame that is accepted from a device; a report group is never that long."""
FRAMES: Final = 1024
RESERVE_BUFFERS: Final = 32_768
LOOK_NS: Final = 1_000_000_000
"""Interval at which the device's own losses are read."""
_CONSUMER = "reports"


class ReportSource(Protocol):
    """Report payloads for a collector, read without waiting."""

    @property
    def udp_port(self) -> int:
        """Return the UDP port that receives reports."""
        ...

    @property
    def lost(self) -> int:
        """Return the number of datagrams lost so far before they could be read."""
        ...

    @property
    def malformed(self) -> int:
        """Return the number of cut, fragmented and corrupt datagrams so far."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when datagrams have come."""
        ...

    def read(self, most: int) -> Iterator[Payloads]:
        """Yield what has arrived, up to about `most` payloads; they are good until the next."""
        ...

    def close(self) -> None:
        """Release the source's resources."""
        ...


@dataclass(slots=True)
class WrappingCount:
    """A total of which the kernel reports the low 32 bits."""

    total: int = 0

    def note(self, low_bits: int) -> None:
        """Take the newest low bits: less than 2**32 was counted since those before."""
        self.total += (low_bits - self.total) & 0xFFFF_FFFF


class SocketSource:
    """A UDP socket, read many datagrams per system call; raises CollectorError if it cannot be bound.

    Payloads that waited unread for longer than `LATE_NS` carry their age, by the kernel's stamps.
    """

    def __init__(
        self,
        address: str,
        udp_port: int,
        buffer_bytes: int,
        clock: Clock | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._socket = bound_socket(address, udp_port, buffer_bytes)
        self._clock, self._wall_ns = clock or MonotonicClock(), wall_ns
        # A kernel without it only lacks the datagrams that come as one.
        with contextlib.suppress(OSError):
            self._socket.setsockopt(SOL_UDP, UDP_GRO, 1)
        self._vector = DatagramVector(self._socket)
        self._vector.stamp_ns()  # from now on the kernel takes them
        self._read_up_to_ns = self._clock.now_ns()  # earlier datagrams have been read
        self._late_messages = 1
        self.behind_since_ns: int | None = None
        """Time since when reading has been late, without the socket having been empty; None: it is not late."""
        self._lost = WrappingCount()

    @property
    def udp_port(self) -> int:
        """The UDP port that the socket is bound to."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def lost(self) -> int:
        """Datagrams dropped because the socket was full, as of the last `read_backlog`."""
        return self._lost.total

    def read_backlog(self) -> SocketBacklog | None:
        """Return the backlog of the socket; None if the kernel does not report it."""
        backlog = read_backlog(self._socket) if self._socket.fileno() >= 0 else None
        if backlog is not None:
            self._lost.note(backlog.dropped)
        return backlog

    @property
    def malformed(self) -> int:
        """Number of datagrams that did not fit; the kernel checks for, and discards, all other malformed ones."""
        return self._vector.cut

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def read(self, most: int) -> Iterator[Payloads]:
        """Yield what has arrived, up to about `most` payloads; they are good until the next."""
        left = most
        while left > 0:
            now_ns = self._clock.now_ns()
            is_late = now_ns - self._read_up_to_ns > LATE_NS
            payloads = self._vector.receive(self._late_messages if is_late else MESSAGES)
            if payloads is None:
                self._read_up_to_ns, self._late_messages, self.behind_since_ns = now_ns, 1, None
                return
            age_ns = self._age_ns() if is_late else 0
            if age_ns:
                self.behind_since_ns = now_ns if self.behind_since_ns is None else self.behind_since_ns
                payloads = replace(payloads, age_ns=age_ns, is_behind=now_ns - self.behind_since_ns > BEHIND_NS)
            else:
                self.behind_since_ns = None
            left -= len(payloads)
            yield payloads

    def _age_ns(self) -> int:
        """Return how long the datagrams just read had waited, 0 below `LATE_NS`; read more at once if that persists.

        A change of the machine's time makes it neither negative nor older than earlier datagrams.
        """
        now_ns, stamp_ns = self._clock.now_ns(), self._vector.stamp_ns()
        age_ns = 0 if stamp_ns is None else max(self._wall_ns() - stamp_ns, 0)
        came_ns = max(now_ns - age_ns, self._read_up_to_ns)
        many = came_ns - self._read_up_to_ns < LATE_NS // 2
        self._late_messages = min(2 * self._late_messages, MESSAGES) if many else max(self._late_messages // 4, 1)
        self._read_up_to_ns = came_ns
        return now_ns - came_ns if now_ns - came_ns > LATE_NS else 0

    def close(self) -> None:
        """Close the socket, after a last count of its losses."""
        self.read_backlog()
        self._socket.close()


class NicSource:
    """Polled queues of a network device, to which a flow rule steers the reports; needs root.

    A socket that is never read holds the port, so that the kernel does not answer reports with ICMP errors. Raises
    CollectorError if the device or the port is unavailable.
    """

    def __init__(self, interface: str, address: str, udp_port: int, clock: Clock) -> None:
        self._clock = clock
        self._reporter: QueueReporter | None = None
        self._holder = bound_socket(address, udp_port, buffer_bytes=1)
        _refuse_all(self._holder)
        self.lost = 0
        self._next_look_ns = clock.now_ns() + LOOK_NS
        try:
            self._nic = open_nic(interface, NicSettings.throughput())
        except PortError as error:
            self._holder.close()
            raise CollectorError(f"cannot receive reports: {error}") from error
        try:
            self._consumer = self._nic.add_consumer(_CONSUMER, buffers=RESERVE_BUFFERS)
            self._nic.classifier.insert(FlowRule(_CONSUMER, self._match(address), ToConsumers(_CONSUMER)))
        except PortError as error:
            self.close()
            raise CollectorError(f"cannot receive reports: {error}") from error
        self._frames = FrameReader(self.udp_port, from_cables=True)
        self._rows: NDArray[np.uint8] = np.zeros((FRAMES, FRAME_BYTES), np.uint8)
        self._lengths = np.empty(FRAMES, np.uint32)
        self._reporter = QueueReporter("collector", NicQueues(self._nic)).start()

    def _match(self, address: str) -> dict[str, int | str]:
        match: dict[str, int | str] = {"udp.dst": self.udp_port}
        local = ip_address(address)
        if not local.is_unspecified:
            match["ip.dst"] = str(local)
        elif local.version == 4:
            match["ip.version"] = 4
        return match

    @property
    def udp_port(self) -> int:
        """The UDP port that receives reports."""
        port: int = self._holder.getsockname()[1]
        return port

    @property
    def malformed(self) -> int:
        """Number of cut, fragmented and corrupt frames to the port so far."""
        return self._frames.malformed

    def fileno(self) -> int:
        """Return the descriptor that the driver rings."""
        return self._consumer.fileno()

    def read(self, most: int) -> Iterator[Payloads]:
        """Yield what has arrived, up to about `most` payloads; they are good until the next."""
        now_ns = self._clock.now_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_NS
            self._count_lost()
        left = most
        while left > 0:
            count = self._consumer.receive_into(self._rows, self._lengths)
            if count == 0:
                return
            left -= count
            places = np.arange(count, dtype=np.uint64) * np.uint64(FRAME_BYTES)
            lengths = np.minimum(self._lengths[:count], FRAME_BYTES)
            yield self._frames.payloads(self._rows.reshape(-1), places, lengths)

    def read_statistics(self) -> NicStatistics:
        """Return the counters of the device and its driver; may be called from any thread."""
        return self._nic.read_statistics()

    def _count_lost(self) -> None:
        statistics = self.read_statistics()
        dropped = sum(count for reason, count in statistics.dropped.items() if reason != "rule")
        self.lost = sum(statistics.missed.values()) + dropped

    def close(self) -> None:
        """Release the device, then count its losses for the last time."""
        if self._reporter is not None:
            self._reporter.close()
        self._nic.close()
        self._count_lost()
        self._holder.close()


def bound_socket(address: str, udp_port: int, buffer_bytes: int, what: str = "reports") -> socket.socket:
    """Return a UDP socket that does not block; raise CollectorError if it cannot be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    ask_receive_buffer(sock, buffer_bytes)
    try:
        sock.bind((address, udp_port))
    except (OSError, UnicodeError) as error:
        sock.close()
        where = f"UDP {address} port {udp_port}"
        cause = getattr(error, "strerror", None) or error
        raise CollectorError(f"cannot receive {what} on {where}: {cause}") from error
    return sock


def _refuse_all(sock: socket.socket) -> None:
    """Attach a filter that drops everything: the port stays bound, and nothing waits in the socket."""
    attach_filter(sock, DROP_ALL)
