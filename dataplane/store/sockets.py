"""UDP sockets for named content: without checksum, since switches change these packets and support no others."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from dataplane.linux import SO_NO_CHECK
from dataplane.store.errors import StoreError

MOST_BYTES: Final = 2048
"""Upper bound on packets of named content."""
_BUFFER_BYTES: Final = 4 << 20


def address_of(text: str) -> str:
    """Validate an IPv4 address; raise StoreError for an invalid one."""
    try:
        return str(IPv4Address(text))
    except AddressValueError:
        raise StoreError(f"{text!r} is not an IPv4 address: packets of named content are IPv4") from None


def receive(opened: socket.socket, most: int) -> Iterator[tuple[bytes, tuple[str, int]]]:
    """Yield pending packets of a non-blocking socket with their senders, at most `most`."""
    for _ in range(most):
        try:
            yield opened.recvfrom(MOST_BYTES)
        except BlockingIOError:
            return


def open_socket(local: tuple[str, int]) -> socket.socket:
    """Return a bound socket; raise StoreError naming the address."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        opened.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        opened.bind(local)
    except OSError as error:
        opened.close()
        raise StoreError(f"no socket at {local[0]}:{local[1]}: {error.strerror or error}") from error
    return opened
