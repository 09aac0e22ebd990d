"""Recent events, kept in memory for watches; a watch that is further behind reads them from disk."""

from __future__ import annotations

import asyncio
from collections import deque

from controller.apiserver.storage.values import Event

Happened = tuple[int, tuple[Event, ...]]
"""A revision and its events."""


class RecentEvents:
    """The latest revisions, and a way to wait for the next one; for one event loop.

    The log is complete after revision `known_from`; `newest` is the last one.
    """

    def __init__(self, newest: int, capacity: int) -> None:
        self.newest, self.known_from = newest, newest
        self._revisions: deque[Happened] = deque()
        self._capacity = capacity
        self._changed = asyncio.Event()

    def add(self, happened: list[Happened]) -> None:
        """Append events, in order of revisions, and wake all waiting readers."""
        if not happened:
            return
        self._revisions.extend(happened)
        self.newest = happened[-1][0]
        while len(self._revisions) > self._capacity:
            self.known_from = self._revisions.popleft()[0]
        self.wake()

    def forget(self, revision: int) -> None:
        """Drop a revision and all before it."""
        while self._revisions and self._revisions[0][0] <= revision:
            self._revisions.popleft()
        self.known_from = max(self.known_from, revision)

    def wake(self) -> None:
        """Wake all waiting readers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, revision: int, prefix: str) -> list[tuple[Event, ...]] | None:
        """Return events of keys with a prefix after a revision; None if the log no longer covers it."""
        if revision < self.known_from:
            return None
        selected = []
        # Watches are nearly always at the end.
        for number, events in reversed(self._revisions):
            if number <= revision:
                break
            concerned = tuple(event for event in events if event.key.startswith(prefix))
            if concerned:
                selected.append(concerned)
        return selected[::-1]

    async def wait_after(self, revision: int) -> None:
        """Return once there is something newer than a revision, or `wake` was called."""
        if self.newest <= revision:
            await self._changed.wait()
