"""Queue of messages to one client: filled from any thread, emptied by the stream's own task."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable

from finsy.proto import p4r

from dataplane.switch.p4runtime.errors import Code, P4RuntimeError

PACKETS = 1024
"""Waiting messages beyond which all but arbitration news are dropped."""

MESSAGES = 2 * PACKETS
"""Waiting messages beyond which the stream is ended: arbitration news are never dropped."""


CountDrop = Callable[[p4r.StreamMessageResponse], None]


class Outbox:
    """A bounded queue; a client that does not read loses messages first (`count_drop` is called), then its stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count_drop: CountDrop) -> None:
        self.failure: P4RuntimeError | None = None
        self._loop = loop
        self._count_drop = count_drop
        self._lock = threading.Lock()
        self._messages: deque[p4r.StreamMessageResponse] = deque()
        self._closed = False
        self._ready = asyncio.Event()

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Queue a message; after `close` it is dropped, as the client is gone."""
        urgent = message.WhichOneof("update") == "arbitration"
        if self._append(message, MESSAGES if urgent else PACKETS):
            return
        if urgent:
            self.fail(P4RuntimeError(Code.RESOURCE_EXHAUSTED, "the client is not reading its stream"))
        else:
            self._count_drop(message)

    def fail(self, failure: P4RuntimeError) -> None:
        """End the stream with an error, unless it has ended already."""
        with self._lock:
            if not self._closed:
                self.failure = failure
        self.close()

    def close(self) -> None:
        """Accept no more messages; `get` returns those waiting, then None."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._loop.call_soon_threadsafe(self._ready.set)

    async def get(self) -> p4r.StreamMessageResponse | None:
        """Wait for the next message; None after the last."""
        while True:
            with self._lock:
                if self._messages:
                    return self._messages.popleft()
                if self._closed:
                    return None
                self._ready.clear()
            await self._ready.wait()

    def _append(self, message: p4r.StreamMessageResponse, limit: int) -> bool:
        with self._lock:
            waiting = len(self._messages)
            if self._closed or waiting >= limit:
                return False
            self._messages.append(message)
            if not waiting:
                self._loop.call_soon_threadsafe(self._ready.set)
            return True
