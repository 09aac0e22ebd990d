"""One direction of a session: frames between a writer and a reader of one event loop, bounded in bytes."""

from __future__ import annotations

import asyncio
from collections import deque

from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame
from controller.common.errors import ApiError


class Pipe:
    """A writer waits while `capacity` bytes are unread; frames are counted with their heads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._frames: deque[Frame] = deque()
        self._nbytes = 0
        self._error: ApiError | None = None
        self._is_ended = False
        self._changed = asyncio.Event()

    async def put(self, frame: Frame) -> None:
        """Append a frame once there is room; raise the ApiError that the pipe was broken with."""
        while self._error is None and self._nbytes >= self._capacity:
            await self._change()
        if self._error is not None:
            raise self._error
        self._frames.append(frame)
        self._nbytes += _nbytes(frame)
        self._wake()

    async def get(self, keep_alive_s: float) -> Frame | None:
        """Return the next frame, a keep-alive where none comes for so long, None after the end.

        Raise the ApiError that the pipe was broken with, after what was written before.
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
        """Let the reader come to an end after what is there."""
        self._is_ended = True
        self._wake()

    def break_off(self, error: ApiError) -> None:
        """Have both sides fail with this; the first one counts."""
        self._error = self._error or error
        self._wake()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()


def _nbytes(frame: Frame) -> int:
    return len(frame.payload) + 5
