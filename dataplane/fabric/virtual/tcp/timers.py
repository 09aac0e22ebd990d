"""Timers that are set anew with each packet: one event of the fabric each, however often they are set."""

from __future__ import annotations

from collections.abc import Callable

from dataplane.events import EventQueue


class LazyTimer:
    """Calls once at the time set last; setting it later costs nothing until the event comes."""

    def __init__(self, events: EventQueue, call: Callable[[], None]) -> None:
        self._events, self._call = events, call
        self._due_ns: int | None = None
        self._event_ns: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether it is going to call."""
        return self._due_ns is not None

    @property
    def due_ns(self) -> int | None:
        """When it is going to call, None if it is not."""
        return self._due_ns

    def set(self, due_ns: int) -> None:
        """Call at a time, not at the one that was set before."""
        self._due_ns = due_ns
        if self._event_ns is None or due_ns < self._event_ns:
            self._event_ns = due_ns
            self._events.at(due_ns, self._look, due_ns)

    def clear(self) -> None:
        """Do not call."""
        self._due_ns = None

    def _look(self, event_ns: int) -> None:
        if event_ns != self._event_ns:
            return  # an earlier event took this one's place
        self._event_ns = None
        if self._due_ns is None:
            return
        if self._due_ns > event_ns:
            self.set(self._due_ns)
            return
        self._due_ns = None
        self._call()
