"""Timers that are rearmed with each packet: one fabric event each, however often they are set."""

from __future__ import annotations

from collections.abc import Callable

from dataplane.events import EventQueue


class LazyTimer:
    """Fires once at the time set last; postponing it costs nothing until the event comes."""

    def __init__(self, events: EventQueue, call: Callable[[], None]) -> None:
        self._events, self._call = events, call
        self._due_ns: int | None = None
        self._event_ns: int | None = None

    @property
    def is_set(self) -> bool:
        """True if the timer is armed."""
        return self._due_ns is not None

    @property
    def due_ns(self) -> int | None:
        """Time at which it fires, None if it is not armed."""
        return self._due_ns

    def set(self, due_ns: int) -> None:
        """Arm the timer for a time, replacing the previous one."""
        self._due_ns = due_ns
        if self._event_ns is None or due_ns < self._event_ns:
            self._event_ns = due_ns
            self._events.at(due_ns, self._look, due_ns)

    def clear(self) -> None:
        """Disarm the timer."""
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
