"""All resources in memory, kept current by a watch: for watchers, and for reads while the storage is down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Final

from controller.apiserver.registry.encoding import ROOT, decode, key_of, kind_of, prefix_of
from controller.apiserver.registry.events import EventRing, Happening
from controller.apiserver.registry.registry import Listing, Registry, absent
from controller.apiserver.registry.selection import Selection
from controller.apiserver.registry.tenancy.usage import UsageBook
from controller.apiserver.resources import Kind, Resource
from controller.apiserver.resources.base import R
from controller.apiserver.storage import Event, Stored
from controller.common.errors import CompactedError, GoneError, StorageError

LOGGER = logging.getLogger("millrace.api")

RING_EVENTS: Final = 16_384
_PAGE: Final = 1000


class ResourceCache:
    """The storage's content at `ring.revision`, kept current by `run`.

    Reads include later writes that this server has acknowledged. `known_ns` is when the cache was last known to be
    complete, by a clock of which only differences count.
    """

    def __init__(self, registry: Registry, now_ns: Callable[[], int], *, capacity: int = RING_EVENTS) -> None:
        self._registry, self._storage, self._acknowledged = registry, registry.storage, registry.acknowledged
        self._now_ns = now_ns
        self._resources: dict[str, Resource] = {}
        self.ring = EventRing(0, capacity)
        self.usage = UsageBook()
        """Usage of each project, and of each owner without one, at `ring.revision`."""
        self.loaded = asyncio.Event()
        self.known_ns = now_ns()

    async def run(self, retry_s: float = 0.5) -> None:
        """Follow the storage until cancelled; log once why that fails."""
        problem = ""
        while True:
            try:
                await self._load()
                problem = ""
                # Watch from the revision that was listed, so that no change falls in between.
                async with aclosing(self._storage.watch(ROOT, after=self.ring.revision)) as watch:
                    async for events in watch:
                        self._apply(events)
            except CompactedError:
                LOGGER.warning("changes were compacted before they were seen: reading everything again")
            except StorageError as error:
                if str(error) != problem:
                    problem = str(error)
                    LOGGER.warning("the storage does not answer: %s", problem)
                await asyncio.sleep(retry_s)

    def get(self, kind: Kind[R], name: str) -> R:
        """Return a resource as last seen in the storage."""
        key = key_of(kind, name)
        resource = self._acknowledged.get(key, self._resources.get(key))
        if not isinstance(resource, kind.type):
            raise absent(kind, name)
        return resource

    def list(self, kind: Kind[R], selection: Selection, *, revision: int | None, after: str, limit: int) -> Listing[R]:
        """Return resources as last seen in the storage; older revisions have no pages."""
        if revision is not None and revision != self.ring.revision:
            raise GoneError(f"the storage is unavailable, and revision {revision} with it: list again")
        prefix, selected = prefix_of(kind), list[R]()
        resources = self._acknowledged.over(self._resources)
        for key in sorted(key for key in resources if key.startswith(prefix) and key > prefix + after):
            resource: Any = resources[key]
            if not selection.selects(kind, resource):
                continue
            if len(selected) == limit:
                return Listing(tuple(selected), self.ring.revision, selected[-1].metadata.name)
            selected.append(resource)
        return Listing(tuple(selected), self.ring.revision)

    def all_of(self, kind: Kind[R]) -> tuple[R, ...]:
        """Return all resources of a kind, unordered."""
        return tuple(resource for resource in self._resources.values() if isinstance(resource, kind.type))

    def counts(self) -> dict[str, int]:
        """Return the number of resources of each kind that has any, by its word in URLs."""
        by_kind: dict[str, int] = {}
        for key in self._resources:
            plural = key[len(ROOT) :].partition("/")[0]
            by_kind[plural] = by_kind.get(plural, 0) + 1
        return by_kind

    def seen(self) -> None:
        """Record that the storage answers, so that the cache is as new as its watch."""
        self.known_ns = self._now_ns()

    @property
    def age_ns(self) -> int:
        """Time since the storage was last seen."""
        return max(self._now_ns() - self.known_ns, 0)

    async def _load(self) -> None:
        """Read everything again."""
        resources: dict[str, Resource] = {}
        loaded: list[tuple[str, Kind[Any], int]] = []
        revision, after = None, ""
        while True:
            page = await self._storage.scan(ROOT, revision=revision, after=after, limit=_PAGE)
            revision = page.revision
            for stored in page.items:
                kind = kind_of(stored.key)
                if kind is not None:
                    resources[stored.key] = decode(kind, stored)
                    loaded.append((stored.key, kind, len(stored.value)))
            if not page.more:
                break
            after = page.items[-1].key
        self._resources = resources
        self.usage.clear()
        for key, kind, nbytes in loaded:
            self.usage.put(key, kind, resources[key], nbytes)
        self._registry.forget_encoded()
        self._acknowledged.reach(revision)
        self.ring.restart(revision)
        self.seen()
        self.loaded.set()

    def _apply(self, events: tuple[Event, ...]) -> None:
        happenings = []
        for event in events:
            happening = happening_of(event, self._registry.decoded)
            if happening is None:
                continue
            happening.before = self._resources.pop(event.key, None)
            if happening.now is not None:
                self._resources[event.key] = happening.now
            nbytes = 0 if event.stored is None else len(event.stored.value)
            self.usage.put(event.key, happening.kind, happening.now, nbytes)
            happening.is_before_known = True
            happenings.append(happening)
        self.seen()
        self._acknowledged.reach(events[-1].revision)
        self.ring.add(happenings, events[-1].revision)


def happening_of(event: Event, decoded: Callable[[Kind[Any], Stored], Any] = decode) -> Happening | None:
    """Return the change in a storage event, None if it concerns no resource; `before` is unknown."""
    kind = kind_of(event.key)
    if kind is None:
        return None
    now = None if event.stored is None else decoded(kind, event.stored)
    name = event.key.removeprefix(prefix_of(kind))
    return Happening(event.revision, kind, name, None, now, is_before_known=False)
