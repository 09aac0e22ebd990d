"""What happened last, kept for those who watch; who has fallen further behind reads it from the disk."""

from __future__ import annotations

import asyncio
from collections import deque

from controller.apiserver.storage.values import Event

Happened = tuple[int, tuple[Event, ...]]
"""A revision and its events."""


class RecentEvents:
    """The last revisions, and a way to wait for the next one; of one event loop.

    `known_from` is the revision after which all are here; `newest` the last one.
    """

    def __init__(self, newest: int, capacity: int) -> None:
        self.newest, self.known_from = newest, newest
        self._revisions: deque[Happened] = deque()
        self._capacity = capacity
        self._changed = asyncio.Event()

    def add(self, happened: list[Happened]) -> None:
        """Take what has happened, in order of revisions, and wake those who wait."""
        if not happened:
            return
        self._revisions.extend(happened)
        self.newest = happened[-1][0]
        while len(self._revisions) > self._capacity:
            self.known_from = self._revisions.popleft()[0]
        self.wake()

    def forget(self, revision: int) -> None:
        """Keep nothing of a revision and those before."""
        while self._revisions and self._revisions[0][0] <= revision:
            self._revisions.popleft()
        self.known_from = max(self.known_from, revision)

    def wake(self) -> None:
        """Let all who wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def since(self, revision: int, prefix: str) -> list[tuple[Event, ...]] | None:
        """Return what happened to keys with a prefix after a revision; None if not all of it is known here."""
        if revision < self.known_from:
            return None
        found = []
        # Watchers are nearly always at the end.
        for number, events in reversed(self._revisions):
            if number <= revision:
                break
            concerned = tuple(event for event in events if event.key.startswith(prefix))
            if concerned:
                found.append(concerned)
        return found[::-1]

    async def wait_after(self, revision: int) -> None:
        """Return when something newer than a revision is here, or `wake` was called."""
        if self.newest <= revision:
            await self._changed.wait()
