"""One direction of a session: frames between a writer and a reader in one event loop, bounded in bytes."""

from __future__ import annotations

import asyncio
from collections import deque

from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame
from controller.common.errors import ApiError


class Pipe:
    """The writer waits while `capacity` bytes are unread, frame headers included."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._frames: deque[Frame] = deque()
        self._nbytes = 0
        self._error: ApiError | None = None
        self._is_ended = False
        self._changed = asyncio.Event()

    async def put(self, frame: Frame) -> None:
        """Append a frame once there is room; raise the ApiError that broke the pipe."""
        while self._error is None and self._nbytes >= self._capacity:
            await self._change()
        if self._error is not None:
            raise self._error
        self._frames.append(frame)
        self._nbytes += _nbytes(frame)
        self._wake()

    async def get(self, keep_alive_s: float) -> Frame | None:
        """Return the next frame, a keep-alive after `keep_alive_s` without one, or None after the end.

        Raise the ApiError that broke the pipe, after all earlier frames.
        """
        try:
            async with asyncio.timeout(keep_alive_s):
                while not self._frames and self._error is None and not self._is_ended:
                    await self._change()
        except TimeoutError:
            return KEEP_ALIVE
        if self._frames:
            frame = self._frames.popleft()
            self._nbytes -= _nbytes(frame)
            self._wake()
            return frame
        if self._error is not None:
            raise self._error
        return None

    def end(self) -> None:
        """End the stream after the frames that are queued."""
        self._is_ended = True
        self._wake()

    def break_off(self, error: ApiError) -> None:
        """Break the pipe on both sides with this error; the first one counts."""
        self._error = self._error or error
        self._wake()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()


def _nbytes(frame: Frame) -> int:
    return len(frame.payload) + 5
