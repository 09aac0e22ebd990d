"""TCP stack of one host: its connections and listeners by port."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Final

from dataplane.errors import FabricError, WireError
from dataplane.events import EventQueue
from dataplane.fabric.virtual.tcp.connection import Connection
from dataplane.fabric.virtual.tcp.segments import ACK, RST, SEQUENCES, SYN, Segment, reset_of
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.fabric.virtual.tcp.states import Address
from dataplane.topology.values import HostNode
from dataplane.wire import tcp_options
from dataplane.wire.fields import IpAddress
from dataplane.wire.ipv6 import Ipv6
from dataplane.wire.packet import decode_tcp_frame, tcp_frame

FIRST_FREE_PORT: Final = 49_152
"""Ports from here up are ephemeral (RFC 6335)."""
PORTS: Final = 1 << 16
MOST_CONNECTIONS: Final = 16_384

Accept = Callable[[Connection], None]


@dataclass(slots=True)
class Drops:
    """TCP frames that reached no connection."""

    malformed: int = 0
    corrupt: int = 0
    no_connection: int = 0
    too_many: int = 0


@dataclass(frozen=True, slots=True)
class Listener:
    """A port that accepts connections; `accept` gets each new one, to set its callbacks."""

    port: int
    settings: TcpSettings
    accept: Accept
    close: Callable[[], None]
    """Stop accepting; existing connections stay."""


class TcpStack:
    """A host's connections; `send` queues a frame on its uplink, whose other end has `gateway_mac`."""

    def __init__(
        self, node: HostNode, gateway_mac: int, events: EventQueue, send: Callable[[bytes], bool], *, seed: int
    ) -> None:
        self.drops = Drops()
        self._node, self._gateway_mac, self._events, self._send = node, gateway_mac, events, send
        self._rng = random.Random(f"{seed}/tcp/{node.name}")
        self._connections: dict[Address, Connection] = {}
        self._listeners: dict[int, Listener] = {}
        self._next_port = FIRST_FREE_PORT

    @property
    def connections(self) -> tuple[Connection, ...]:
        """Connections that are not closed."""
        return tuple(self._connections.values())

    def listen(self, port: int, accept: Accept, settings: TcpSettings | None = None) -> Listener:
        """Accept connections on a port; raise FabricError if it is taken or invalid."""
        self._check_port(port)
        if port in self._listeners:
            raise FabricError(f"{self._node.name}: port {port} already has a listener")
        listener = Listener(port, settings or TcpSettings(), accept, partial(self._stop_listening, port))
        self._listeners[port] = listener
        return listener

    def connect(
        self,
        remote: IpAddress | str,
        port: int,
        settings: TcpSettings | None = None,
        *,
        local_port: int | None = None,
    ) -> Connection:
        """Open a connection to a host's port; return it, to set its callbacks.

        Raises FabricError for an address of a family that the host lacks, and for invalid or taken ports.
        """
        self._check_port(port)
        try:
            target = ip_address(remote) if isinstance(remote, str) else remote
        except ValueError as error:
            raise FabricError(f"{self._node.name}: {remote!r} is not an IP address") from error
        local = self._node.ipv4 if target.version == 4 else self._node.ipv6
        if local is None:
            raise FabricError(f"{self._node.name} has no IPv{target.version} address")
        own_port = self._free_port(local, target, port) if local_port is None else local_port
        self._check_port(own_port)
        address = Address(local, own_port, target, port)
        if address in self._connections:
            raise FabricError(f"{self._node.name}: port {own_port} is taken")
        connection = self._make(address, settings or TcpSettings())
        connection.open()
        return connection

    def receive(self, frame: bytes, now_ns: int) -> None:  # noqa: ARG002 - the signature of host receivers
        """Receive a frame from the network; anything but TCP for this host is ignored."""
        try:
            parsed = decode_tcp_frame(frame)
            if parsed is None or parsed.ip.dst not in {self._node.ipv4, self._node.ipv6}:
                return
            options = tcp_options.decode(parsed.header.options)
        except WireError:
            self.drops.malformed += 1
            return
        if not parsed.checksum_ok or not (isinstance(parsed.ip, Ipv6) or parsed.ip.valid):
            self.drops.corrupt += 1
            return
        segment = Segment(parsed.header, options, parsed.payload, parsed.ip.ecn)
        address = Address(parsed.ip.dst, parsed.header.dst_port, parsed.ip.src, parsed.header.src_port)
        connection = self._connections.get(address)
        if connection is not None:
            connection.hear(segment)
        else:
            self._hear_stranger(address, segment)

    def _hear_stranger(self, address: Address, segment: Segment) -> None:
        listener = self._listeners.get(address.local_port)
        if listener is not None and segment.flags & (SYN | ACK | RST) == SYN:
            if len(self._connections) >= MOST_CONNECTIONS:
                self.drops.too_many += 1
                return
            connection = self._make(address, listener.settings)
            listener.accept(connection)
            connection.answer(segment)
            return
        self.drops.no_connection += 1
        if not segment.flags & RST:
            self._transmit(address, reset_of(segment))

    def _make(self, address: Address, settings: TcpSettings) -> Connection:
        if len(self._connections) >= MOST_CONNECTIONS:
            raise FabricError(f"{self._node.name}: {MOST_CONNECTIONS} connections are open, the most at a time")
        connection = Connection(
            address,
            settings,
            self._events,
            self._transmit,
            first_sequence=self._rng.randrange(SEQUENCES),
            stamp_offset=self._rng.randrange(SEQUENCES),
        )
        self._connections[address] = connection
        connection.forget = partial(self._forget, address)
        return connection

    def _forget(self, address: Address) -> None:
        self._connections.pop(address, None)

    def _stop_listening(self, port: int) -> None:
        self._listeners.pop(port, None)

    def _free_port(self, local: IpAddress, remote: IpAddress, port: int) -> int:
        for _ in range(FIRST_FREE_PORT, PORTS):
            chosen = self._next_port
            self._next_port = chosen + 1 if chosen + 1 < PORTS else FIRST_FREE_PORT
            if Address(local, chosen, remote, port) not in self._connections:
                return chosen
        raise FabricError(f"{self._node.name}: no port is free for one more connection to {remote} port {port}")

    def _transmit(self, address: Address, segment: Segment) -> bool:
        return self._send(
            tcp_frame(
                src_mac=self._node.mac,
                dst_mac=self._gateway_mac,
                src=address.local,
                dst=address.remote,
                header=segment.header,
                payload=segment.payload,
                ecn=segment.ecn,
            )
        )

    def _check_port(self, port: int) -> None:
        if not 0 < port < PORTS:
            raise FabricError(f"{self._node.name}: {port} is not a port")
