"""Queries over a plain netlink socket, for frequent polling; pyroute2 decodes only what changed.

pyroute2's own sockets take milliseconds and return decoded replies; these take microseconds, and raw bytes compare as
they are.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from types import TracebackType
from typing import Final

SOCK_DIAG: Final = 4
"""NETLINK_SOCK_DIAG (sock_diag(7))."""
REQUEST, DUMP = 0x001, 0x300
HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence number, port."""
_ERROR, _DONE, _MULTI = 2, 3, 0x2
_READ_BYTES = 1 << 17
_PATIENCE: Final = struct.pack("=qq", 1, 0)


class Netlink:
    """A socket in the namespace of the thread that opens it; one query at a time."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _PATIENCE)

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, request: bytes) -> list[bytes]:
        """Return the messages of the reply, whole; raise OSError, including when the kernel refuses."""
        self._socket.send(request)
        messages: list[bytes] = []
        while True:
            for kind, flags, message in _messages(self._socket.recv(_READ_BYTES)):
                if kind == _ERROR:
                    (code,) = struct.unpack_from("=i", message, HEADER.size)
                    raise OSError(-code, os.strerror(-code))
                if kind == _DONE:
                    return messages
                messages.append(message)
                if not flags & _MULTI:
                    return messages


def request(kind: int, flags: int, body: bytes) -> bytes:
    """Build a request message."""
    return HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, 1, 0) + body


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield each message with its type and flags."""
    offset = 0
    while offset + HEADER.size <= len(data):
        length, kind, flags, _, _ = HEADER.unpack_from(data, offset)
        if length < HEADER.size:
            return
        yield kind, flags, data[offset : offset + length]
        offset += -(-length // 4) * 4
