"""Reading of a socket in the event loop, in turns."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable


async def whenever_readable(sock: socket.socket, drain: Callable[[], object]) -> None:
    """Call `drain` for as long as something waits in a non-blocking socket, until cancelled; it reads at most one turn.

    Other work has its turn between two calls.
    """
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, arrived.set)  # again and again until all is read
    try:
        while True:
            await arrived.wait()
            arrived.clear()
            drain()
    finally:
        loop.remove_reader(sock)
