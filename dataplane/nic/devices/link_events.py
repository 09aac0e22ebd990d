"""Changes of the devices of this network namespace: RTM_NEWLINK and RTM_DELLINK messages (rtnetlink(7))."""

from __future__ import annotations

import errno
import socket

from dataplane.errors import PortError

_RTMGRP_LINK = 1
_READ_BYTES = 1 << 16
_BUFFER_BYTES = 1 << 20


class LinkEvents:
    """A subscription in the namespace of the thread that made it; what changed is to be looked up.

    Raises PortError if the kernel refuses. That some messages were lost is a change, too.
    """

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
            self._socket.bind((0, _RTMGRP_LINK))
        except OSError as error:
            raise PortError(f"changes of devices cannot be watched: {error.strerror}") from error

    def fileno(self) -> int:
        """Return the descriptor that is readable once something changed."""
        return self._socket.fileno()

    def take(self) -> bool:
        """Return whether something changed since the last call; raise PortError if that cannot be known any more."""
        changed = False
        while True:
            try:
                self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                return changed
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # which says that more came than there was room for
                    raise PortError(f"changes of devices cannot be watched: {error.strerror}") from error
            changed = True

    def close(self) -> None:
        """End the subscription."""
        self._socket.close()
