"""Progress of a watch over several connections: the revision to resume from, and the events already delivered."""

from __future__ import annotations

from controller.apiserver.client.values import Event
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources.base import R


class WatchProgress:
    """Events that a watch has delivered, over any number of connections.

    Events of one transaction share a revision, and a connection may end between them. So a watch resumes before the
    last revision that it saw, until something newer shows that this one is complete.
    """

    def __init__(self, after: int | None) -> None:
        self.after = after
        """The revision to resume after; None: the newest revision at that time."""
        self._newest = 0
        self._names: set[str] = set()

    def is_new(self, event: Event[R]) -> bool:
        """Record an event and return whether it is new."""
        if event.revision < self._newest:
            return False  # the first bookmark of a connection repeats where it resumes
        if event.type is EventType.BOOKMARK:
            self.after = self._newest = event.revision
            self._names.clear()
            return True
        if event.revision > self._newest:
            # Other events of this revision may still follow, so resume before it.
            self.after, self._newest = event.revision - 1, event.revision
            self._names.clear()
        if event.name in self._names:
            return False
        self._names.add(event.name)
        return True
