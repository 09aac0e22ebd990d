"""Sockets between hosts' namespaces: what the kernel itself puts on a wire, each kind of it a line of its own."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from tests.payloads.kernel import TOPOLOGY

CLIENT, NEAR, FAR = "h1", "h2", "h5"
REQUEST_BYTES, DATAGRAM_BYTES, FULL_BYTES, FRAGMENTED_BYTES = 400, 404, 1472, 4000
_KEY: Final = b"fabric"
_TCP_MD5SIG, _TCP_FASTOPEN, _TCP_FASTOPEN_CONNECT = 14, 23, 30
_SO_NO_CHECK, _UDP_NO_CHECK6_TX, _UDP_NO_CHECK6_RX = 11, 101, 102
_IP_MTU_DISCOVER, _IP_PMTUDISC_DONT = 10, 0

Address = tuple[str, int]
Option = Callable[[socket.socket, str], None]
"""Sets what a line asks for on a socket; the address is the other side's."""


@dataclass(frozen=True, slots=True)
class Line:
    """Requests or datagrams from one host's socket to another's, which sends them back.

    `reconnect`: number of requests until a new connection, so that first packets are covered, too.
    """

    name: str
    server: str
    client_address: str
    server_address: str
    port: int
    tcp: bool = True
    size: int = REQUEST_BYTES
    option: Option | None = None
    reconnect: int | None = None

    @property
    def family(self) -> socket.AddressFamily:
        """IPv4's or IPv6's."""
        return socket.AF_INET6 if ":" in self.server_address else socket.AF_INET

    def open_client(self) -> socket.socket:
        """Return a socket that is not connected yet; call in the client's namespace."""
        return self._open(self.server_address)

    def open_server(self) -> socket.socket:
        """Return a bound socket, which listens if it is TCP's; call in the server's namespace."""
        opened = self._open(self.client_address)
        opened.bind((self.server_address, self.port))
        if self.tcp:
            opened.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN, 16)
            opened.listen()
        return opened

    def _open(self, peer: str) -> socket.socket:
        opened = socket.socket(self.family, socket.SOCK_STREAM if self.tcp else socket.SOCK_DGRAM)
        opened.setblocking(False)
        if self.tcp:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        elif self.family == socket.AF_INET:
            opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DONT)
        if self.option is not None:
            self.option(opened, peer)
        return opened


def signed(opened: socket.socket, peer: str) -> None:
    """Have TCP sign its segments (RFC 2385)."""
    packed = socket.inet_pton(opened.family, peer)
    at = 8 if opened.family == socket.AF_INET6 else 4
    storage = struct.pack("=H", opened.family) + bytes(at - 2) + packed
    opened.setsockopt(socket.IPPROTO_TCP, _TCP_MD5SIG, struct.pack("=128sBBHI80s", storage, 0, 0, len(_KEY), 0, _KEY))


def in_first_packet(opened: socket.socket, _: str) -> None:
    """Have TCP send data with its SYN (RFC 7413), once it has a cookie."""
    opened.setsockopt(socket.IPPROTO_TCP, _TCP_FASTOPEN_CONNECT, 1)


def without_checksum(opened: socket.socket, _: str) -> None:
    """Have UDP send a checksum of zero (RFC 768, RFC 6935)."""
    if opened.family == socket.AF_INET:
        opened.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
    else:
        opened.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_TX, 1)
        opened.setsockopt(socket.IPPROTO_UDP, _UDP_NO_CHECK6_RX, 1)


def plain_lines() -> tuple[Line, ...]:
    """Return the lines that need no device of their own."""
    client, near, far = (TOPOLOGY.host[name] for name in (CLIENT, NEAR, FAR))
    assert client.ipv6 is not None
    assert far.ipv6 is not None
    v4, v6 = _ends(FAR, client.ipv4, far.ipv4), _ends(FAR, client.ipv6, far.ipv6)
    beside = _ends(NEAR, client.ipv4, near.ipv4)
    return (
        Line("TCP", *v4, 6000),
        Line("TCP, IPv6", *v6, 6000),
        Line("TCP, same leaf", *beside, 6000),
        Line("TCP, signed", *v4, 6001, option=signed, reconnect=50),
        Line("TCP, IPv6, signed", *v6, 6001, option=signed, reconnect=50),
        Line("TCP, data with SYN", *v4, 6002, option=in_first_packet, reconnect=5),
        Line("TCP, IPv6, data with SYN", *v6, 6002, option=in_first_packet, reconnect=5),
        Line("UDP", *v4, 6000, tcp=False, size=DATAGRAM_BYTES),
        Line("UDP, IPv6", *v6, 6000, tcp=False, size=DATAGRAM_BYTES),
        Line("UDP, same leaf", *beside, 6000, tcp=False, size=DATAGRAM_BYTES),
        Line("UDP, no checksum", *v4, 6001, tcp=False, size=DATAGRAM_BYTES, option=without_checksum),
        Line("UDP, IPv6, no checksum", *v6, 6001, tcp=False, size=DATAGRAM_BYTES, option=without_checksum),
        Line("UDP, fragments", *v4, 6002, tcp=False, size=FRAGMENTED_BYTES),
        Line("UDP, IPv6, fragments", *v6, 6002, tcp=False, size=FRAGMENTED_BYTES),
        Line("UDP, full frames", *v4, 6003, tcp=False, size=FULL_BYTES),
    )


def lines_inside(name: str, client: str, server: str) -> tuple[Line, ...]:
    """Return the lines through a device of the kernel's: TCP, UDP, and what the device has to cut in pieces."""
    return (
        Line(f"TCP in {name}", FAR, client, server, 6000),
        Line(f"UDP in {name}", FAR, client, server, 6000, tcp=False, size=DATAGRAM_BYTES),
        Line(f"UDP in {name}, fragments", FAR, client, server, 6001, tcp=False, size=FRAGMENTED_BYTES),
    )


def _ends(server: str, client: IPv4Address | IPv6Address, address: IPv4Address | IPv6Address) -> tuple[str, str, str]:
    return server, str(client), str(address)
