"""Resources of subscribers: states that they share, and a queue of records for each."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sized
from math import ceil
from typing import Generic, TypeVar

from collectors.record_columns import RecordColumns

T = TypeVar("T", bound=Sized)
S = TypeVar("S")


def next_due(now_s: float, interval_s: float) -> float:
    """Return when a subscriber of an interval gets its next message, by a clock that all subscribers share.

    It is a multiple of the interval, so that subscribers of one interval, and of multiples of it, ask together. At
    least half an interval is left to other work, however long the last message took.
    """
    return ceil(now_s / interval_s + 0.5) * interval_s


class SharedSnapshots(Generic[S]):
    """Takes states off the event loop, one at a time; use it inside the running event loop."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._state: S | None = None
        self._taken_s = float("-inf")
        self._making: asyncio.Task[None] | None = None

    async def since(self, due_s: float) -> S:
        """Return a state that was taken at a time of the loop's clock, or later."""
        while self._state is None or self._taken_s < due_s:
            if self._making is None:
                self._making = asyncio.create_task(self._make_one())
            # A subscriber that leaves must not take the state from the others.
            await asyncio.shield(self._making)
        return self._state

    async def _make_one(self) -> None:
        try:
            taken_s = asyncio.get_running_loop().time()
            self._state = await asyncio.to_thread(self._make)
            self._taken_s = taken_s
        finally:
            self._making = None


class Handover(Generic[T]):
    """A bounded queue from any thread to a coroutine that sends; make it inside the running event loop."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()
        self._guard = threading.Lock()
        self._items: deque[T] = deque()
        self._has_called = False

    def offer(self, item: T) -> bool:
        """Queue an item; return False if the queue is full. Never waits for the loop."""
        with self._guard:
            if len(self._items) >= self._room:
                return False
            self._items.append(item)
            # One call for all that comes until the loop has its turn: each costs a system call.
            calls, self._has_called = not self._has_called, True
        if calls:
            self._loop.call_soon_threadsafe(self._filled.set)
        return True

    async def take(self, enough: int) -> list[T]:
        """Wait for items; return queued ones, oldest first, until they hold `enough` or the queue is empty."""
        await self._filled.wait()
        taken: list[T] = []
        held = 0
        with self._guard:
            while self._items and held < enough:
                taken.append(self._items.popleft())
                held += len(taken[-1])
            if not self._items:
                self._filled.clear()
                self._has_called = False
        return taken


class RecordQueue:
    """Batches of hop records that wait for one subscriber, of a bounded number of records; for any thread."""

    def __init__(self, room: int, on_full: Callable[[], None]) -> None:
        self._room, self._on_full = room, on_full
        self._guard = threading.Lock()
        self._batches: list[RecordColumns] = []
        self._held = 0

    def offer(self, batch: RecordColumns) -> None:
        """Queue a batch unless it is empty; call `on_full` instead if there is no room."""
        with self._guard:
            fits = self._held + len(batch) <= self._room
            if fits and len(batch):
                self._batches.append(batch)
                self._held += len(batch)
        if not fits:
            self._on_full()

    def take(self) -> list[RecordColumns]:
        """Return the queued batches, oldest first."""
        with self._guard:
            taken, self._batches, self._held = self._batches, [], 0
        return taken
