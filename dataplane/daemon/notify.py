"""Service state notifications to systemd (sd_notify(3)): a datagram to the socket that it names."""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress


def notify(state: str) -> None:
    """Send a state such as `READY=1` to the service manager; do nothing if there is none."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)) as sender, suppress(OSError):
        # An abstract address begins with a zero byte.
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
