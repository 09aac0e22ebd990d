"""Deadlines in the event loop's running time, so that a process does not mistake its own stall for its peer's.

An answer that arrived while the loop was busy elsewhere, or the machine had no CPU time for it, waits unread; a plain
`asyncio.timeout` would expire before anyone looked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

_SLICES: Final = 20
"""Slices of a deadline, each counted at its end; a loop that is late by more than one was stalled."""
_LONGEST_FACTOR: Final = 10
"""Maximum stretch of a deadline, as a multiple of its length."""


@asynccontextmanager
async def loop_timeout(seconds: float) -> AsyncIterator[Deadline]:
    """Raise TimeoutError when a block takes longer than this, not counting stalls of the event loop.

    After a stall the block has at least a twentieth of the time left, to read what arrived meanwhile.
    """
    async with asyncio.timeout(None) as limit:
        deadline = Deadline(limit, seconds)
        try:
            yield deadline
        finally:
            deadline.cancel()


class Deadline:
    """A deadline that is counted down in slices."""

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._loop, self._limit = asyncio.get_running_loop(), limit
        self._slice_s, self._left = seconds / _SLICES, _SLICES
        self._latest_s = self._loop.time() + _LONGEST_FACTOR * seconds
        self._arm()

    def cancel(self) -> None:
        """Let the block take as long as it likes."""
        self._timer.cancel()

    def _arm(self) -> None:
        self._due_s = self._loop.time() + self._slice_s
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now_s = self._loop.time()
        if now_s - self._due_s <= self._slice_s:
            self._left -= 1
        if self._left > 0 and now_s < self._latest_s:
            self._arm()
        else:
            self._limit.reschedule(now_s)
