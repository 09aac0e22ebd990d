"""Where a collector's report datagrams come from: a UDP socket, or the polled queues of a network device."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final, Protocol

import numpy as np

from collectors.errors import CollectorError
from dataplane.clock import Clock
from dataplane.errors import PortError, WireError
from dataplane.nic import FlowRule, NicSettings, ToConsumers, open_nic
from dataplane.wire.packet import decode_udp_frame

SO_RXQ_OVFL: Final = 40
"""Linux: with each datagram comes how many the socket's full buffer has cost so far (socket(7)); not in `socket`."""
MAX_DATAGRAM: Final = 65_535
FRAME_BYTES: Final = 9_238
"""The longest frame that is taken from a device; a report group never needs so much."""
RESERVE_BUFFERS: Final = 16_384
SO_ATTACH_FILTER: Final = 26
"""Linux: a classic BPF program that says how much of each datagram is kept (socket(7)); not in `socket`."""
LOOK_NS: Final = 1_000_000_000
"""How often the device's own losses are looked up."""
_CONSUMER = "reports"

Datagram = tuple[bytes, object]
"""A payload, and who sent it."""


class ReportSource(Protocol):
    """Datagrams for a collector, read without waiting."""

    @property
    def udp_port(self) -> int:
        """Return the UDP port that reports come to."""
        ...

    @property
    def lost(self) -> int:
        """Return how many datagrams were lost before they could be read, so far."""
        ...

    @property
    def malformed(self) -> int:
        """Return how many datagrams were cut, in fragments or had a wrong checksum, so far."""
        ...

    def fileno(self) -> int:
        """Return a descriptor that is readable when datagrams have come."""
        ...

    def read(self, most: int) -> Iterable[Datagram]:
        """Return up to `most` datagrams."""
        ...

    def close(self) -> None:
        """Give back what the source uses."""
        ...


class SocketSource:
    """A UDP socket; raises CollectorError if it cannot be bound."""

    malformed = 0  # the kernel looks at them, and keeps what is wrong

    def __init__(self, address: str, udp_port: int, buffer_bytes: int) -> None:
        self._socket = _bind(address, udp_port, buffer_bytes)
        self._overflow = 0
        self.lost = 0

    @property
    def udp_port(self) -> int:
        """The port that the socket is bound to."""
        port: int = self._socket.getsockname()[1]
        return port

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def read(self, most: int) -> Iterator[Datagram]:
        """Yield up to `most` datagrams that are there."""
        for _ in range(most):
            try:
                payload, ancillary, _, source = self._socket.recvmsg(MAX_DATAGRAM, socket.CMSG_SPACE(4))
            except (BlockingIOError, InterruptedError):
                return
            self.count_overflow(ancillary)
            yield payload, source

    def count_overflow(self, ancillary: Iterable[tuple[int, int, bytes]]) -> None:
        """Add what the socket's full buffer has cost since the last datagram."""
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == SO_RXQ_OVFL and len(data) >= 4:
                total = struct.unpack("=I", data[:4])[0]
                self.lost += (total - self._overflow) & 0xFFFF_FFFF
                self._overflow = total

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class NicSource:
    """Polled queues of a network device, out of which a flow rule picks the reports; needs root.

    A socket that takes nothing holds the port, so that the kernel does not answer reports with ICMP errors. Raises
    CollectorError if the device or the port cannot be had.
    """

    def __init__(self, interface: str, address: str, udp_port: int, clock: Clock) -> None:
        self._clock = clock
        self._holder = _bind(address, udp_port, buffer_bytes=1)
        _refuse_all(self._holder)
        self.lost = self.malformed = 0
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
        self._rows = np.empty((256, FRAME_BYTES), np.uint8)
        self._lengths = np.empty(len(self._rows), np.uint32)

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
        """The port that reports come to."""
        port: int = self._holder.getsockname()[1]
        return port

    def fileno(self) -> int:
        """Return the descriptor that the driver rings."""
        return self._consumer.fileno()

    def read(self, most: int) -> Iterator[Datagram]:
        """Yield up to `most` datagrams that are there."""
        now_ns = self._clock.now_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_NS
            self._count_lost()
        count = self._consumer.receive_into(self._rows[:most], self._lengths[:most])
        for row, length in zip(self._rows[:count], self._lengths[:count].tolist(), strict=True):
            yield from self._datagram(row[:length].tobytes())

    def _datagram(self, frame: bytes) -> Iterator[Datagram]:
        """Yield what a frame carries, if that is whole."""
        try:
            found = decode_udp_frame(frame)
        except WireError:
            found = None
        if found is None or not found.checksum_ok:
            self.malformed += 1
            return
        yield found.payload, (str(found.ip.src), found.src_port)

    def _count_lost(self) -> None:
        statistics = self._nic.read_statistics()
        dropped = sum(count for reason, count in statistics.dropped.items() if reason != "rule")
        self.lost = sum(statistics.missed.values()) + dropped

    def close(self) -> None:
        """Give the device back; what was lost is counted for the last time."""
        self._nic.close()
        self._count_lost()
        self._holder.close()


def _bind(address: str, udp_port: int, buffer_bytes: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    # The kernel cuts what is more than it grants, but takes no number of more than 31 bits.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, min(buffer_bytes, 0x7FFF_FFFF))
    # A kernel without this option only lacks the counter.
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
    try:
        sock.bind((address, udp_port))
    except (OSError, UnicodeError) as error:
        sock.close()
        where = f"UDP {address} port {udp_port}"
        cause = getattr(error, "strerror", None) or error
        raise CollectorError(f"cannot receive reports on {where}: {cause}") from error
    return sock


def _refuse_all(sock: socket.socket) -> None:
    """Attach a filter that takes nothing: the port is ours, and nothing waits in the socket."""
    code = np.array([(0x06, 0, 0, 0)], np.dtype([("code", "u2"), ("jt", "u1"), ("jf", "u1"), ("k", "u4")]))
    sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(code), code.ctypes.data))
