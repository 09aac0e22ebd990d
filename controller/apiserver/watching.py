"""Watches: events of resources as JSON lines, from memory, or from the storage for a watch that is further behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from controller.apiserver.registry.cache import ResourceCache, happening_of
from controller.apiserver.registry.encoding import prefix_of
from controller.apiserver.registry.events import EventType, Happening, WatchEvent, line_of
from controller.apiserver.registry.registry import away
from controller.apiserver.registry.selection import Selection
from controller.apiserver.resources import Kind
from controller.apiserver.storage import Event, Storage
from controller.common.errors import ApiError, CompactedError, GoneError, StorageError, UnavailableError

_AT_ONCE: Final = 256
"""Events sent to a watch in one piece."""
_BURST: Final = 8.0
_LOOKS_PER_S: Final = 100.0
"""Polls per second of one watch under load: each costs about as much as ten events."""


@dataclass(slots=True)
class WatchCounters:
    """Counters of watches."""

    open: int = 0
    too_slow: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """`heartbeat_s` is the interval of bookmarks while nothing happens, `most` the limit of open watches."""

    heartbeat_s: float = 10.0
    most: int = 512


class Pace:
    """Pacing of a watch's polls for events: a few at once, then a fixed rate.

    Under load, events that accumulate are sent in one piece; a single event is sent at once.
    """

    def __init__(self, now_s: float) -> None:
        self._credit, self._since_s = _BURST, now_s

    def wait_s(self, now_s: float) -> float:
        """Return the delay before the next poll, and count it."""
        self._credit = min(_BURST, self._credit + (now_s - self._since_s) * _LOOKS_PER_S) - 1.0
        self._since_s = now_s
        return max(0.0, -self._credit / _LOOKS_PER_S)


class Watching:
    """Open watches over the cache's latest events; for one event loop."""

    def __init__(self, storage: Storage, cache: ResourceCache, limits: WatchLimits) -> None:
        self._storage, self._cache, self._limits = storage, cache, limits
        self.counters = WatchCounters()
        self.stopping = asyncio.Event()

    def check_room(self) -> None:
        """Raise UnavailableError, and count it, if no more watches are accepted."""
        if self.counters.open >= self._limits.most:
            self.counters.refused += 1
            raise UnavailableError(f"the limit of {self._limits.most} open watches is reached")

    def has(self, after: int) -> bool:
        """Return whether all events after a revision are in memory."""
        ring = self._cache.ring
        return after <= ring.revision and ring.position_after(after) is not None

    async def check_known(self, kind: Kind[Any], after: int) -> None:
        """Raise GoneError for a revision that the storage has compacted, or not reached."""
        with away():
            newest = await self._storage.revision()
            if after > newest:
                raise GoneError(f"revision {after} is in the future, the newest is {newest}: list again")
            await self._storage.scan(prefix_of(kind), revision=after, limit=1)

    def stop(self) -> None:
        """End all watches."""
        self.stopping.set()
        self._cache.ring.wake()

    async def lines(self, kind: Kind[Any], selection: Selection, after: int) -> AsyncIterator[bytes]:
        """Yield events after a revision until `stop`; the last line says why a watch ends."""
        self.counters.open += 1
        try:
            yield line_of(WatchEvent(EventType.BOOKMARK, after))
            async with aclosing(self._catch_up(kind, selection, after)) as missed:
                async for line, revision in missed:
                    after = revision
                    if line is not None:
                        yield line
            async with aclosing(self._follow(kind, selection, after)) as parts:
                async for part in parts:
                    yield part
        except ApiError as error:
            yield line_of(WatchEvent(EventType.ERROR, after, status=error.status, detail=str(error)))
        finally:
            self.counters.open -= 1

    async def _catch_up(
        self, kind: Kind[Any], selection: Selection, after: int
    ) -> AsyncGenerator[tuple[bytes | None, int], None]:
        """Yield events from before the ring's start, from the storage, with their revisions."""
        if self._cache.ring.position_after(after) is not None:
            return
        try:
            async with aclosing(self._storage.watch(prefix_of(kind), after=after)) as watch:
                async for events in _with_pauses(watch, self._limits.heartbeat_s):
                    if events is None:
                        yield line_of(WatchEvent(EventType.BOOKMARK, after)), after
                        continue
                    for event in events:
                        happening, after = happening_of(event), event.revision
                        yield None if happening is None else happening.line(selection), after
                    if self._cache.ring.position_after(after) is not None:
                        return
        except CompactedError as error:
            raise GoneError(f"{error}: list again") from None
        except StorageError as error:
            raise UnavailableError(f"the storage does not answer: {error}") from None

    async def _follow(self, kind: Kind[Any], selection: Selection, after: int) -> AsyncGenerator[bytes, None]:
        """Yield the ring's events; a watch whose position has left the ring is too slow."""
        ring, begin = self._cache.ring, after
        position = ring.position_after(after)
        loop, heartbeat_s = asyncio.get_running_loop(), self._limits.heartbeat_s
        silent_since_s = loop.time()
        pace = Pace(silent_since_s)
        while not self.stopping.is_set():
            if wait_s := pace.wait_s(loop.time()):
                await asyncio.sleep(wait_s)
            events = None if position is None else ring.since(position, _AT_ONCE)
            if position is None or events is None:
                self.counters.too_slow += 1
                raise GoneError(f"this watch is too slow: it ends after revision {after}; watch again from there")
            lines = [line for event in events if (line := _line(event, kind, selection, begin)) is not None]
            position += len(events)
            # The rest of the last event's revision may still follow.
            seen = ring.revision if position == ring.end else events[-1].revision - 1
            after = max(after, seen)
            if lines:
                yield b"".join(lines)
                silent_since_s = loop.time()
            # Events of others wake it, too, but that does not exempt it from heartbeats.
            due_s = silent_since_s + heartbeat_s
            if not await ring.wait_beyond(position, max(0.0, due_s - loop.time())) or loop.time() >= due_s:
                yield line_of(WatchEvent(EventType.BOOKMARK, after))
                silent_since_s = loop.time()
        raise UnavailableError("the server is stopping")


async def _with_pauses(
    watch: AsyncGenerator[tuple[Event, ...], None], seconds: float
) -> AsyncGenerator[tuple[Event, ...] | None, None]:
    """Yield what a watch yields, and None after each pause."""
    waiting: asyncio.Future[tuple[Event, ...]] | None = None
    try:
        while True:
            # Keep the pending step across pauses: cancelling it would end the generator.
            waiting = waiting or asyncio.ensure_future(anext(watch))
            done, _ = await asyncio.wait((waiting,), timeout=seconds)
            if not done:
                yield None
                continue
            item, waiting = waiting.result(), None
            yield item
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


def _line(event: Happening, kind: Kind[Any], selection: Selection, after: int) -> bytes | None:
    return event.line(selection) if event.kind is kind and event.revision > after else None
