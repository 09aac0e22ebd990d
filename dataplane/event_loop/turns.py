"""Turns at work that many want to do at the same time, without the slow ones holding up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Lets few do something at a time; who takes longer than `seconds` goes on, and the next one begins beside it."""

    def __init__(self, at_once: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(at_once), seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the block lasts."""
        await self._free.acquire()
        is_over = False

        def end() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._seconds, end)
        try:
            yield
        finally:
            timer.cancel()
            end()
