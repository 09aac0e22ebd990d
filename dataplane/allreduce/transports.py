"""Transports of a worker's packets: the kernel's UDP, frames in our own rings, or what its node's manager grants."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any, Final, Protocol

from dataplane.allreduce.kernels.layouts import BURST, LINK_BYTES, PACKET_BYTES, STRIDE, EngineState
from dataplane.allreduce.next_hop import NextHop, find_next_hop
from dataplane.errors import AllReduceError, PortError
from dataplane.linux import DROP_ALL, SO_NO_CHECK, ask_receive_buffer, attach_filter
from dataplane.native import Array, pointer_to
from dataplane.nic.driver.opening import open_port
from dataplane.nic.layouts import InputOutputVector, MessageHeader
from dataplane.nic.managed.link import LinkError, ManagerLink, manager_sockets
from dataplane.nic.managed.messages import QueueState
from dataplane.nic.managed.polled import state_of
from dataplane.nic.managed.reporter import QueueReporter, claim_queues
from dataplane.nic.modes import Mode
from dataplane.nic.ports.nic_port import NicPort
from dataplane.nic.ports.queue import PortKind
from dataplane.wire.ipv4 import PROTOCOL_UDP
from dataplane.wire.packet import ip_packet, link_header
from dataplane.wire.udp import SIZE, Udp

LOGGER: Final = logging.getLogger("millrace.allreduce")
_ECN_CAPABLE: Final = 2
_RECEIVE_BYTES: Final = 16 << 20
_WORDS: Final = {PortKind.PACKET_V2: "rings", PortKind.PACKET_V3: "rings of blocks", PortKind.XDP: "AF_XDP"}


class Transport(Protocol):
    """Carries packets between one worker and one aggregator."""

    @property
    def local_address(self) -> tuple[str, int]:
        """The address and UDP port that other programs know the worker by."""
        ...

    def attach(self, state: EngineState) -> None:
        """Hand the engine the state its kernels need."""
        ...

    def connect(self, aggregator: str, port: int) -> None:
        """Send to this aggregator from now on; raise AllReduceError if there is no route."""
        ...

    def close(self) -> None:
        """Release everything; the engine must not run any more."""
        ...


class UdpTransport:
    """A kernel UDP socket; raises AllReduceError."""

    def __init__(self, local: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _ECN_CAPABLE)
        ask_receive_buffer(self._socket, _RECEIVE_BYTES)
        _bind(self._socket, local)

    @property
    def local_address(self) -> tuple[str, int]:
        """The socket's own address."""
        host, port = self._socket.getsockname()
        return host, port

    def attach(self, state: EngineState) -> None:
        """Hand the engine the socket and vectors for several packets per call."""
        state.fd = self._socket.fileno()
        state.rx_buffers = buffers = zeros(BURST * STRIDE)
        state.rx_vector = _vector([buffers.address + at * STRIDE for at in range(BURST)])
        state.tx_vector = _vector([0] * BURST)

    def connect(self, aggregator: str, port: int) -> None:
        """Connect the socket."""
        try:
            self._socket.connect((aggregator, port))
        except OSError as error:
            raise AllReduceError(f"no route to {aggregator}:{port}: {error.strerror}") from None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class RingTransport:
    """Frames in the rings of one of our ports; the transport owns the port and a guard from here on."""

    def __init__(self, port: NicPort, next_hop: NextHop, udp_port: int, guard: socket.socket | None = None) -> None:
        self._port, self._next_hop, self._udp_port, self._guard = port, next_hop, udp_port, guard
        self._link = zeros(LINK_BYTES)
        self._reporter: QueueReporter | None = None
        self.thread = 0
        """The kernel's number of the thread that runs all-reduces; 0 before the first."""

    def report(self, program: str, link: ManagerLink | None = None) -> None:
        """Report the queue to the node's manager under a program's name, by the connection that granted it, if any."""
        self._reporter = QueueReporter(program, self, link=link).start()

    def read(self) -> Sequence[QueueState]:
        """Return the polled queue; the engine does not count polls."""
        self._port.read_counters()  # updates the kernel's drops
        state = state_of(self._port, 0, thread=self.thread, mode=Mode.WAITING, polls=None)
        return () if state is None else (state,)

    def set_mode(self, device: str, queue: int | None, mode: Mode) -> None:  # noqa: ARG002 - it has one
        """Refuse: a worker waits for packets and timers while an all-reduce runs, and polls nothing in between."""
        if mode is not Mode.WAITING:
            raise PortError(f"interface {device}: a worker of an all-reduce only waits")

    @property
    def local_address(self) -> tuple[str, int]:
        """The address and UDP port in its frames."""
        return str(self._next_hop.source), self._udp_port

    def attach(self, state: EngineState) -> None:
        """Hand the engine the port's first queue."""
        state.queue = self._port.queues[0]
        state.link = self._link
        state.frames, state.lengths = zeros(8 * BURST), zeros(4 * BURST)

    def connect(self, aggregator: str, port: int) -> None:
        """Write the headers common to all frames; the next hop stays the same."""
        next_hop, length = self._next_hop, SIZE + PACKET_BYTES
        datagram = Udp(self._udp_port, port, length).encode() + bytes(PACKET_BYTES)
        packet = ip_packet(next_hop.source, IPv4Address(aggregator), PROTOCOL_UDP, datagram, ecn=_ECN_CAPABLE)
        frame = link_header(next_hop.source_mac, next_hop.next_mac, 4) + packet
        ctypes.memmove(self._link.address, frame[:LINK_BYTES], LINK_BYTES)

    def close(self) -> None:
        """Close the port."""
        if self._reporter is not None:
            self._reporter.close()
        self._port.close()
        if self._guard is not None:
            self._guard.close()


def open_rings(
    kind: PortKind, next_hop: NextHop, udp_port: int, *, program: str, link: ManagerLink | None = None
) -> RingTransport:
    """Open rings on a device, and report them; UDP port 0 leaves the choice to the kernel. Raises AllReduceError.

    The transport owns the `link` over which they were granted, once it is open.
    """
    # The kernel sees the frames, too. It must neither keep them, nor tell the aggregator that the port is closed, nor
    # give the port to another process.
    guard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    attach_filter(guard, DROP_ALL)
    _bind(guard, (str(next_hop.source), udp_port))
    try:
        port = open_port(next_hop.interface, kind)
    except PortError as error:
        guard.close()
        raise AllReduceError(str(error)) from None
    transport = RingTransport(port, next_hop, guard.getsockname()[1], guard)
    transport.report(program, link)
    return transport


def open_granted(aggregator: str, local: tuple[str, int], job: str, program: str) -> Transport:
    """Open granted queues of the device that leads to the aggregator, else a UDP socket at `local`, and log which.

    Raises AllReduceError if there is no socket either.
    """
    try:
        return _rings(aggregator, local, job, program)
    except (LinkError, AllReduceError) as error:
        LOGGER.info("%s: UDP sockets: %s", program, error)
        return UdpTransport(local)


def _rings(aggregator: str, local: tuple[str, int], job: str, program: str) -> RingTransport:
    if not manager_sockets():
        raise LinkError("no node's manager runs here")
    next_hop = find_next_hop(aggregator, local[0])
    device = next_hop.interface
    claim = claim_queues(program, device, socket.if_nametoindex(device), job=job)
    kind = PortKind[claim.grant.kind.upper()]
    try:
        transport = open_rings(kind, next_hop, local[1], program=program, link=claim.link)
    except BaseException:
        claim.close()
        raise
    queues = ", ".join(map(str, claim.grant.queues))
    LOGGER.info("%s: %s on %s, queue %s granted by node %s", program, _WORDS[kind], device, queues, claim.node)
    return transport


def zeros(nbytes: int) -> Array[Any]:
    """Allocate zeroed memory for kernels."""
    return pointer_to(bytearray(nbytes))


def _bind(opened: socket.socket, local: tuple[str, int]) -> None:
    try:
        opened.bind(local)
    except OSError as error:
        opened.close()
        raise AllReduceError(f"no socket at {local[0]}:{local[1]}: {os.strerror(error.errno or 0)}") from None


def _vector(buffers: list[int]) -> Array[Any]:
    """Return a struct mmsghdr per packet, followed by an iovec for each."""
    size, piece = ctypes.sizeof(MessageHeader), ctypes.sizeof(InputOutputVector)
    memory = zeros(len(buffers) * (size + piece))
    pieces = memory.address + len(buffers) * size
    for at, buffer in enumerate(buffers):
        header = MessageHeader.from_address(memory.address + at * size)
        vector = InputOutputVector.from_address(pieces + at * piece)
        header.vector, header.vector_count = pieces + at * piece, 1
        vector.base, vector.nbytes = buffer, PACKET_BYTES
    return memory


def free_udp_port(address: str, port: int = 0) -> int:
    """Return a currently free UDP port, or the given one if it is free; raise AllReduceError if it is not."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.bind((address, port))
        except OSError as error:
            where = f"UDP port {port}" if port else "no UDP port"
            raise AllReduceError(f"{where} at {address or 'any address'}: {error.strerror}") from error
        free: int = probe.getsockname()[1]
        return free
