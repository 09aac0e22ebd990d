"""A registry that lists from memory: sorted, at one revision, in pieces between which it yields to other tasks.

For a storage that only this process writes: its own writes are all there are. A list waits until the watch has
delivered them; a list of a revision that is no longer in memory is read from the storage.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.registry import Listing, Registry
from controller.apiserver.registry.selection import ALL, Selection
from controller.apiserver.resources import Kind, Resource
from controller.apiserver.resources.base import R
from controller.apiserver.storage.values import Expected

_AT_ONCE: Final = 128
"""Resources to process before yielding to other tasks: a fraction of a millisecond."""
PIECES: Final[ContextVar[asyncio.Lock | None]] = ContextVar("pieces", default=None)
"""Lock shared by requests whose lists together advance one piece per turn of the event loop; None: independent."""
_KEPT: Final = 8
"""Revisions per kind whose next pages come from memory."""
_BEHIND_S: Final = 1.0
"""Longest wait for a watch that is behind."""


@dataclass(slots=True)
class _Snapshot:
    """All resources of a kind at a revision; immutable once read."""

    revision: int
    names: list[str]
    resources: dict[str, Any]
    is_read: bool = False

    def writable(self) -> _Snapshot:
        """Return a mutable snapshot: a copy if this one has readers."""
        return _Snapshot(self.revision, self.names.copy(), self.resources.copy()) if self.is_read else self

    def put(self, name: str, resource: Resource | None) -> None:
        """Set or remove (None) the resource of a name."""
        if resource is None:
            if self.resources.pop(name, None) is not None:
                del self.names[bisect_left(self.names, name)]
            return
        if name not in self.resources:
            insort(self.names, name)
        self.resources[name] = resource


async def next_piece() -> None:
    """Yield to other tasks."""
    lock = PIECES.get()
    if lock is None:
        await asyncio.sleep(0)
        return
    async with lock:
        await asyncio.sleep(0)


class IndexedRegistry(Registry):
    """A registry that lists from the cache given to `follow`; see the module."""

    _cache: ResourceCache | None = None
    _position: int | None = None
    _written = 0

    def follow(self, cache: ResourceCache) -> None:
        """Serve lists from a cache of this registry."""
        self._cache = cache
        self._snapshots: dict[str, _Snapshot] = {}
        self._older: dict[str, OrderedDict[int, _Snapshot]] = {}

    async def write(self, wanted: Mapping[str, Resource | None], expected: tuple[Expected, ...] = ()) -> int:
        """Write as `Registry` does; later lists include it."""
        revision = await super().write(wanted, expected)
        # Concurrent writes may return out of order.
        self._written = max(self._written, revision)
        return revision

    async def list(
        self, kind: Kind[R], selection: Selection = ALL, *, revision: int | None = None, after: str = "", limit: int
    ) -> Listing[R]:
        """Return at most `limit` selected resources after a name; raise GoneError for an old revision."""
        cache = self._cache
        snapshot = None
        if cache is not None and cache.loaded.is_set():
            if revision is not None:
                older = self._older.get(kind.plural)
                snapshot = None if older is None else older.get(revision)
            elif await self._is_current(cache):
                snapshot = self._newest(cache, kind)
        if snapshot is None:
            return await super().list(kind, selection, revision=revision, after=after, limit=limit)
        return await _listed(snapshot, kind, selection, after, limit)

    async def _is_current(self, cache: ResourceCache) -> bool:
        """Return whether the cache has everything acknowledged before this call; wait for it briefly."""
        until_s = time.monotonic() + _BEHIND_S
        wanted = self._written
        while cache.ring.revision < wanted:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not await cache.ring.wait_beyond(cache.ring.end, left_s):
                return cache.ring.revision >= wanted
        return True

    def _newest(self, cache: ResourceCache, kind: Kind[Any]) -> _Snapshot:
        self._catch_up(cache)
        snapshot = self._snapshots.get(kind.plural)
        if snapshot is None:
            resources = {resource.metadata.name: resource for resource in cache.all_of(kind)}
            snapshot = self._snapshots[kind.plural] = _Snapshot(cache.ring.revision, sorted(resources), resources)
        elif snapshot.revision != cache.ring.revision:
            # Nothing of this kind has changed since, so the snapshot is still valid.
            snapshot = self._snapshots[kind.plural] = _Snapshot(cache.ring.revision, snapshot.names, snapshot.resources)
        snapshot.is_read = True
        older = self._older.setdefault(kind.plural, OrderedDict())
        older[snapshot.revision] = snapshot
        while len(older) > _KEPT:
            older.popitem(last=False)
        return snapshot

    def _catch_up(self, cache: ResourceCache) -> None:
        """Apply what the cache received since the last list."""
        ring = cache.ring
        news = None if self._position is None else ring.since(self._position, ring.end - self._position)
        self._position = ring.end
        if news is None:  # everything was read again, or too much has happened
            self._snapshots.clear()
            return
        for event in news:
            snapshot = self._snapshots.get(event.kind.plural)
            if snapshot is not None:
                snapshot = self._snapshots[event.kind.plural] = snapshot.writable()
                snapshot.put(event.name, event.now)


async def _listed(snapshot: _Snapshot, kind: Kind[R], selection: Selection, after: str, limit: int) -> Listing[R]:
    names, selected = snapshot.names, list[R]()
    start = bisect_right(names, after) if after else 0
    for begin in range(start, len(names), _AT_ONCE):
        for name in names[begin : begin + _AT_ONCE]:
            resource: Any = snapshot.resources[name]
            if not selection.selects(kind, resource):
                continue
            if len(selected) == limit:
                return Listing(tuple(selected), snapshot.revision, selected[-1].metadata.name)
            selected.append(resource)
        await next_piece()
    return Listing(tuple(selected), snapshot.revision)
