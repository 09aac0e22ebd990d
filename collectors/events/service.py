"""Events as they happen: the engine on a collector's snapshots, the newest events kept, sinks notified."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from collectors.collector import Collector
from collectors.counters import Count
from collectors.events.engine import EventEngine
from collectors.events.rules import Rule, RuleSettings
from collectors.values import Event
from dataplane.clock import NS_PER_S

EventSink = Callable[[tuple[Event, ...]], None]


class EventService:
    """Watches a collector; `step` it by any clock, or `run` it in real time until cancelled.

    While it runs, a separate thread evaluates the rules; everything else belongs to the event loop.
    """

    def __init__(self, collector: Collector, settings: RuleSettings | None = None) -> None:
        self._collector = collector
        self._settings = settings or RuleSettings()
        self._engine = EventEngine(self._settings.rules, self._settings.max_subjects)
        self._kept: deque[Event] = deque(maxlen=self._settings.keep_events)
        self._sinks: list[EventSink] = []
        self._guard = threading.Lock()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Current rules."""
        with self._guard:
            return self._engine.rules

    @property
    def kept(self) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        return tuple(self._kept)

    def open_events(self) -> tuple[Event, ...]:
        """Return the events that are not cleared yet."""
        with self._guard:
            return self._engine.open_events()

    def replace(self, rules: Sequence[Rule]) -> None:
        """Replace the rules immediately; raise ValueError for two of one name."""
        with self._guard:
            events = self._engine.replace(rules)
        self._publish(events)

    def step(self) -> tuple[Event, ...]:
        """Evaluate the rules on a snapshot of now; return the raised and cleared events."""
        events = self._observe()
        self._publish(events)
        return events

    def _observe(self) -> tuple[Event, ...]:
        with self._guard:
            if not self._engine.rules:
                return ()
            events = self._engine.observe(self._collector.snapshot())
            self._collector.counters[Count.NOT_JUDGED] += self._engine.take_not_judged()
        return events

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Call `sink` with each step's events, if there are any; return a function that ends it."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    async def run(self) -> None:
        """Step at the settings' interval until cancelled."""
        while True:
            self._publish(await asyncio.to_thread(self._observe))
            await asyncio.sleep(self._settings.interval_ns / NS_PER_S)

    def _publish(self, events: tuple[Event, ...]) -> None:
        if not events:
            return
        self._collector.counters[Count.EVENTS] += len(events)
        self._kept.extend(events)
        for sink in self._sinks:
            sink(events)
