"""What has happened to resources last, for those who watch; each event is encoded once for all of them."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from controller.apiserver.registry.selection import Selection
from controller.apiserver.resources import Kind, Resource
from controller.apiserver.resources.base import Count, Line
from dataplane.config import Strict


class EventType(StrEnum):
    """What a line of a watch says."""

    PUT = "PUT"
    """A resource is, or has become, what was asked for."""
    DELETE = "DELETE"
    """It is not any more: gone, or not selected any more."""
    BOOKMARK = "BOOKMARK"
    """Nothing up to this revision was left out."""
    ERROR = "ERROR"
    """The watch ends, and why."""


NO_OBJECT: Final = msgspec.Raw()


class WatchEvent(Strict, frozen=True, omit_defaults=True, kw_only=False):
    """A line of a watch."""

    type: EventType
    revision: Count
    kind: Line = ""
    name: Line = ""
    object: msgspec.Raw = NO_OBJECT
    """The resource; of a deletion as it was before, where that is known."""
    status: int | None = None
    detail: Line = ""


_ENCODER = msgspec.json.Encoder()


def line_of(event: WatchEvent) -> bytes:
    """Return an event as a line of JSON."""
    return _ENCODER.encode(event) + b"\n"


@dataclass(slots=True)
class Happening:
    """What happened to a resource; `before` and `now` are None where it was not there, `before` also where unknown."""

    revision: int
    kind: Kind[Any]
    name: str
    before: Resource | None
    now: Resource | None
    is_before_known: bool = True
    _put: bytes | None = None
    _delete: bytes | None = None

    def line(self, selection: Selection) -> bytes | None:
        """Return what a watcher with a selection gets, None if it is nothing of his."""
        if self.now is not None and selection.selects(self.kind, self.now):
            if self._put is None:
                self._put = self._line(EventType.PUT, self.now)
            return self._put
        if self.is_before_known and (self.before is None or not selection.selects(self.kind, self.before)):
            return None
        if self._delete is None:
            self._delete = self._line(EventType.DELETE, self.before)
        return self._delete

    def _line(self, kind: EventType, resource: Resource | None) -> bytes:
        raw = NO_OBJECT if resource is None else msgspec.Raw(_ENCODER.encode(resource))
        return line_of(WatchEvent(kind, self.revision, self.kind.name, self.name, raw))


class EventRing:
    """The last happenings, in order of revisions; of one event loop.

    `known_from` is the revision after which all are here. Who reads holds a position; one that is not here any more
    belongs to somebody who was too slow.
    """

    def __init__(self, revision: int, capacity: int) -> None:
        self.revision, self.known_from = revision, revision
        self._capacity = capacity
        self._events: list[Happening] = []
        self._base = 0
        self._changed = asyncio.Event()

    def add(self, happenings: list[Happening], revision: int) -> None:
        """Take what has happened up to a revision, and wake those who wait."""
        self._events += happenings
        self.revision = revision
        surplus = len(self._events) - self._capacity
        if surplus > self._capacity // 4:
            # Of one revision all stay or all go, as `known_from` is a revision.
            while surplus < len(self._events) and self._events[surplus].revision == self._events[surplus - 1].revision:
                surplus += 1
            self.known_from = self._events[surplus - 1].revision
            del self._events[:surplus]
            self._base += surplus
        self.wake()

    def restart(self, revision: int) -> None:
        """Forget everything, as something may have been missed up to a revision."""
        self._base += len(self._events) + 1  # no position of before is one any more
        self._events.clear()
        self.revision = self.known_from = revision
        self.wake()

    def wake(self) -> None:
        """Let all who wait look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def position_after(self, revision: int) -> int | None:
        """Return where what happened after a revision begins; None if not all of it is here."""
        if revision < self.known_from:
            return None
        return self._base + bisect_right(self._events, revision, key=lambda event: event.revision)

    def since(self, position: int, most: int) -> list[Happening] | None:
        """Return what stands from a position on, at most so many; None if that is not here any more."""
        start = position - self._base
        return None if start < 0 else self._events[start : start + most]

    @property
    def end(self) -> int:
        """The position after the last happening."""
        return self._base + len(self._events)

    async def wait_beyond(self, position: int, seconds: float) -> bool:
        """Return True once there is something from a position on or `wake` is called, False after a time."""
        if self.end > position or position < self._base:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
