"""Turns for work that many tasks compete for, without slow ones holding up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """Lets a few tasks work at a time; one that takes longer than `seconds` continues, but gives up its turn."""

    def __init__(self, at_once: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(at_once), seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it while the block lasts."""
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
