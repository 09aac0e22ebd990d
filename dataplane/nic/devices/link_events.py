"""Device changes from rtnetlink(7), in this network namespace and in those that its cables lead to."""

from __future__ import annotations

import errno
import socket
import struct
from typing import Final

from dataplane.errors import PortError

_RTMGRP_LINK, _RTMGRP_TC = 1, 8
_SOL_NETLINK, _LISTEN_ALL_NSID = 270, 8
_HEADER: Final = struct.Struct("=IHHII")
_INDEX: Final = struct.Struct("=i")
_INDEX_OFFSET: Final = _HEADER.size + 4
"""Offset of the device's index in struct ifinfomsg and struct tcmsg."""
_READ_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20


class LinkEvents:
    """A subscription in the namespace of the thread that made it; the caller looks up what changed.

    Raises PortError if the kernel refuses. Lost messages count as a change, too.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket.bind((0, _RTMGRP_LINK))
        except OSError as error:
            raise PortError(f"device changes cannot be watched: {error.strerror}") from error

    def fileno(self) -> int:
        """Return the descriptor that becomes readable once something changed."""
        return self._socket.fileno()

    def take(self) -> bool:
        """Return whether something changed since the last call; raise PortError if that can no longer be known."""
        changed = False
        while True:
            try:
                self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the socket's buffer overflowed
                    raise PortError(f"device changes cannot be watched: {error.strerror}") from error
            changed = True

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()


Ends = frozenset[tuple[int | None, int]]
"""Devices: the id of their namespace, None for this one, and their index there."""


class CableEvents:
    """A subscription to changes of devices and tc disciplines, including namespaces that this one has an id for.

    A namespace has an id for each one that a veth cable leads to. Create it in the namespace to watch; raises PortError
    if the kernel refuses.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
            self._socket.bind((0, _RTMGRP_LINK | _RTMGRP_TC))
        except OSError as error:
            raise PortError(f"changes at the other ends of cables cannot be watched: {error.strerror}") from error

    def fileno(self) -> int:
        """Return the descriptor that becomes readable once something changed."""
        return self._socket.fileno()

    def take(self) -> Ends | None:
        """Return which devices changed since the last call, None if it might be any; raise OSError when it ends."""
        changed: set[tuple[int | None, int]] = set()
        lost = False
        while True:
            try:
                data, controls, _, _ = self._socket.recvmsg(_READ_BYTES, 64)
            except BlockingIOError:
                return None if lost else frozenset(changed)
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # the socket's buffer overflowed
                    raise
                lost = True
                continue
            ids = [_INDEX.unpack(value)[0] for level, kind, value in controls if (level, kind) == _OF_ANOTHER]
            changed.update((ids[0] if ids else None, index) for index in _devices_in(data))

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()


_OF_ANOTHER: Final = (_SOL_NETLINK, _LISTEN_ALL_NSID)
"""Control message with the namespace id, attached to a message of another namespace."""


def _devices_in(data: bytes) -> list[int]:
    """Return the indexes of the devices that messages are about."""
    devices, offset = [], 0
    while offset + _INDEX_OFFSET + _INDEX.size <= len(data):
        (length, *_) = _HEADER.unpack_from(data, offset)
        devices.append(_INDEX.unpack_from(data, offset + _INDEX_OFFSET)[0])
        offset += max(-(-length // 4) * 4, _HEADER.size)
    return devices
