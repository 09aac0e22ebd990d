"""Recent changes to resources, for watchers; each event is encoded once for all of them."""

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
    """Type of a line in a watch."""

    PUT = "PUT"
    """A resource matches the selection, newly or still."""
    DELETE = "DELETE"
    """It no longer does: it was deleted, or is no longer selected."""
    BOOKMARK = "BOOKMARK"
    """Every event up to this revision was sent."""
    ERROR = "ERROR"
    """The watch ends, with the reason."""


NO_OBJECT: Final = msgspec.Raw()


class WatchEvent(Strict, frozen=True, omit_defaults=True, kw_only=False):
    """A line of a watch."""

    type: EventType
    revision: Count
    kind: Line = ""
    name: Line = ""
    object: msgspec.Raw = NO_OBJECT
    """The resource; for a deletion its previous state, if known."""
    status: int | None = None
    detail: Line = ""


_ENCODER = msgspec.json.Encoder()


def line_of(event: WatchEvent) -> bytes:
    """Return an event as a line of JSON."""
    return _ENCODER.encode(event) + b"\n"


@dataclass(slots=True)
class Happening:
    """Change of a resource; `before` and `now` are None where it did not exist, `before` also if unknown."""

    revision: int
    kind: Kind[Any]
    name: str
    before: Resource | None
    now: Resource | None
    is_before_known: bool = True
    _put: bytes | None = None
    _delete: bytes | None = None

    def line(self, selection: Selection) -> bytes | None:
        """Return the line for a watcher with a selection, None if the change does not concern it."""
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
    """The latest changes, in order of revision; not thread-safe: use it from one event loop.

    The ring is complete after revision `known_from`. A reader holds a position; one that has left the ring belongs to a
    reader that was too slow.
    """

    def __init__(self, revision: int, capacity: int) -> None:
        self.revision, self.known_from = revision, revision
        self._capacity = capacity
        self._events: list[Happening] = []
        self._base = 0
        self._changed = asyncio.Event()

    def add(self, happenings: list[Happening], revision: int) -> None:
        """Add the changes up to a revision, and wake all waiting readers."""
        self._events += happenings
        self.revision = revision
        surplus = len(self._events) - self._capacity
        # Trim in large steps: deleting from the front of a list moves all the rest.
        if surplus > self._capacity // 4:
            # Keep or drop all changes of one revision together, as `known_from` is a revision.
            while surplus < len(self._events) and self._events[surplus].revision == self._events[surplus - 1].revision:
                surplus += 1
            self.known_from = self._events[surplus - 1].revision
            del self._events[:surplus]
            self._base += surplus
        self.wake()

    def restart(self, revision: int) -> None:
        """Forget everything, as changes up to a revision may have been missed."""
        self._base += len(self._events) + 1  # invalidates all earlier positions
        self._events.clear()
        self.revision = self.known_from = revision
        self.wake()

    def wake(self) -> None:
        """Wake all waiting readers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def position_after(self, revision: int) -> int | None:
        """Return the position of the first change after a revision; None if the ring no longer covers it."""
        if revision < self.known_from:
            return None
        return self._base + bisect_right(self._events, revision, key=lambda event: event.revision)

    def since(self, position: int, most: int) -> list[Happening] | None:
        """Return at most `most` changes from a position on; None if that has left the ring."""
        start = position - self._base
        return None if start < 0 else self._events[start : start + most]

    @property
    def end(self) -> int:
        """The position after the last change."""
        return self._base + len(self._events)

    async def wait_beyond(self, position: int, seconds: float) -> bool:
        """Return True once there is a change at a position or `wake` is called, False after a timeout."""
        if self.end > position or position < self._base:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True
