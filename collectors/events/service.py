"""Events as they happen: the engine on a collector's snapshots, the newest events kept, sinks notified."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.events.changes import RuleChange, RuleState, changes_of, holding, in_force
from collectors.events.engine import EventEngine
from collectors.events.rules import Rule, RuleSettings, check_names
from collectors.events.store import EventStore, NoteKey
from collectors.values import Event, EventNote, Phase
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.collector")

EventSink = Callable[[tuple[Event, ...]], None]
NoteSink = Callable[[Event], None]

REJOIN_NS: Final = 600 * NS_PER_S
"""For this long after a restart, an event that is raised again keeps its note: rules first have to see it hold."""


class EventService:
    """Watches a collector; `step` it by any clock, or `run` it in real time until cancelled.

    While it runs, a separate thread evaluates the rules; everything else belongs to the event loop. `store` keeps notes
    and changes of rules across restarts; without one they end with the service. `wall_ns` is UNIX time.
    """

    def __init__(
        self,
        collector: Collector,
        settings: RuleSettings | None = None,
        *,
        store: EventStore | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._collector, self._store, self._wall_ns = collector, store, wall_ns
        self._settings = settings or RuleSettings()
        self._settings_rules = self._settings.rules
        saved = () if store is None else store.rule_changes()
        self._changes = holding(self._settings_rules, saved)
        if store is not None and self._changes != saved:
            store.put_rule_changes(self._changes)
        rules = in_force(self._settings_rules, self._changes)
        self._engine = EventEngine(rules, self._settings.max_subjects)
        self._kept: deque[Event] = deque(maxlen=self._settings.keep_events)
        self._notes: dict[NoteKey, EventNote] = {}
        self._earlier: dict[NoteKey, EventNote] = {} if store is None else dict(store.notes())
        """Notes from before a restart, whose events may be raised again."""
        self._began_ns: int | None = None
        self._now_ns = 0
        self._sinks: list[EventSink] = []
        self._note_sinks: list[NoteSink] = []
        self._guard = threading.Lock()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Current rules."""
        with self._guard:
            return self._engine.rules

    @property
    def state(self) -> RuleState:
        """Current rules, and how they differ from the settings."""
        return RuleState(self.rules, self._changes)

    @property
    def kept(self) -> tuple[Event, ...]:
        """The newest events, oldest first."""
        return tuple(self._kept)

    def open_events(self) -> tuple[Event, ...]:
        """Return the events that are not cleared yet, with their notes."""
        with self._guard:
            events = self._engine.open_events()
        return tuple(replace(event, note=self._notes.get(_key(event))) for event in events)

    def since(self, time_ns: int) -> tuple[Event, ...]:
        """Return the kept events since a time; before them those that have been open for longer."""
        still_open = {(*_key(event), event.time_ns): event for event in self.open_events()}
        kept = [
            still_open.pop((*_key(event), event.time_ns), event) if event.phase is Phase.RAISED else event
            for event in self._kept
            if event.time_ns >= time_ns
        ]
        return (*still_open.values(), *kept)

    def replace(self, rules: Sequence[Rule], by: str = "") -> None:
        """Replace the rules immediately, on somebody's behalf; raise ValueError for two of one name.

        Each rule that differs from the settings' stays so until the settings' rule of its name changes.
        """
        check_names(tuple(rules))
        self._apply(rules, changes_of(self._settings_rules, rules, self._changes, by, self._wall_ns()))

    def reload(self, settings_rules: Sequence[Rule]) -> None:
        """Take new rules from the settings; changes of rules that are the same as before stay in force."""
        check_names(tuple(settings_rules))
        changes = holding(settings_rules, self._changes)
        for change in self._changes:
            if change not in changes:
                LOGGER.info("rule %s: the settings have changed it since %s did: they hold", change.name, change.by)
        self._settings_rules = tuple(settings_rules)
        self._apply(in_force(settings_rules, changes), changes)

    def acknowledge(self, rule: str, subject: str, note: EventNote | None) -> Event:
        """Attach a note to an open event, or withdraw it; raise CollectorError."""
        key = rule, subject
        event = next((event for event in self.open_events() if _key(event) == key), None)
        if event is None:
            raise CollectorError(f"rule {rule!r} has no open event on {subject}")
        if self._store is not None:
            if note is None:
                self._store.drop_notes([key])
            else:
                self._store.put_note(key, note)
        if note is None:
            self._notes.pop(key, None)
        else:
            self._notes[key] = note
        noted = replace(event, note=note)
        for sink in self._note_sinks:
            sink(noted)
        return noted

    def step(self) -> tuple[Event, ...]:
        """Evaluate the rules on a snapshot of now; return the raised and cleared events."""
        return self._publish(self._observe())

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        """Call `sink` with each step's events, if there are any; return a function that ends it."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    def subscribe_notes(self, sink: NoteSink) -> Callable[[], None]:
        """Call `sink` with each event whose note was given or withdrawn; return a function that ends it."""
        self._note_sinks.append(sink)
        return lambda: self._note_sinks.remove(sink)

    async def run(self) -> None:
        """Step at the settings' interval until cancelled."""
        while True:
            self._publish(await asyncio.to_thread(self._observe))
            await asyncio.sleep(self._settings.interval_ns / NS_PER_S)

    def _observe(self) -> tuple[Event, ...]:
        with self._guard:
            if not self._engine.rules:
                return ()
            snapshot = self._collector.snapshot()
            self._now_ns = snapshot.taken_ns
            events = self._engine.observe(snapshot)
            self._collector.counters[Count.NOT_JUDGED] += self._engine.take_not_judged()
        return events

    def _apply(self, rules: Sequence[Rule], changes: Sequence[RuleChange]) -> None:
        # The file first: what cannot be kept is refused, not in force until the next restart.
        if self._store is not None:
            self._store.put_rule_changes(changes)
        with self._guard:
            events = self._engine.replace(rules)
        self._changes = tuple(changes)
        self._publish(events)

    def _publish(self, events: tuple[Event, ...]) -> tuple[Event, ...]:
        """Count, keep and tell events, with their notes; a cleared event takes its note with it."""
        self._forget_earlier()
        if not events:
            return ()
        noted = tuple(map(self._noted, events))
        ended = (_key(event) for event in events if event.phase is Phase.CLEARED)
        self._drop([key for key in ended if self._notes.pop(key, None) is not None])
        self._collector.counters[Count.EVENTS] += len(events)
        self._kept.extend(noted)
        for sink in self._sinks:
            sink(noted)
        return noted

    def _noted(self, event: Event) -> Event:
        key = _key(event)
        if event.phase is Phase.RAISED and (earlier := self._earlier.pop(key, None)) is not None:
            self._notes[key] = earlier
        return replace(event, note=self._notes.get(key))

    def _forget_earlier(self) -> None:
        """Drop notes from before the restart once their events had the time to be raised again."""
        if not self._earlier:
            return
        if self._began_ns is None:
            self._began_ns = self._now_ns or None
        elif self._now_ns - self._began_ns > REJOIN_NS:
            gone, self._earlier = tuple(self._earlier), {}
            self._drop(gone)

    def _drop(self, keys: Sequence[NoteKey]) -> None:
        if not keys or self._store is None:
            return
        try:
            self._store.drop_notes(keys)
        except CollectorError as error:
            # The events are cleared all the same; after a restart the note is on the next one at worst.
            LOGGER.warning("%s", error)


def _key(event: Event) -> NoteKey:
    return event.rule, str(event.subject)
