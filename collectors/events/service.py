"""Events as they happen: the engine on a collector's snapshots, the newest events kept, sinks notified."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence

from collectors.collector import Collector
from collectors.counters import Count
from collectors.events.rules import Rule, RuleSettings, check_names
from collectors.events.watches import ChangeWatch, LimitWatch, Observation, Watch
from collectors.values import Event, Snapshot

# Rules over snapshots: a pure step from one snapshot to the events that it raises and clears, and what it remembers.
#
# A figure that the snapshot does not know neither raises nor clears. An open event is cleared when its condition has
# been over for long enough, when its subject is no longer in the snapshot, or when its rule is taken away.


class EventEngine:
    """Evaluates rules, snapshot by snapshot; memory is bounded by `max_subjects`."""

    def __init__(self, rules: Sequence[Rule] = (), max_subjects: int = 65_536) -> None:
        check_names(tuple(rules))
        self._watches = {rule.name: _watch(rule) for rule in rules}
        self._max_subjects = max_subjects
        self._last: Observation | None = None
        self._not_judged = 0

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Current rules."""
        return tuple(watch.rule for watch in self._watches.values())

    def observe(self, snapshot: Snapshot) -> tuple[Event, ...]:
        """Return the events that a snapshot raises and clears; none if it is not newer than the last."""
        last = self._last
        if last is not None and snapshot.taken_ns <= last.time_ns:
            return ()
        events: list[Event] = []
        seen = Observation(snapshot)
        room = self._max_subjects - sum(watch.remembered for watch in self._watches.values())
        for watch in self._watches.values():
            before = watch.remembered
            events += watch.observe(last, seen, room)
            room -= watch.remembered - before
            self._not_judged += watch.take_passed_over()
        self._last = seen
        return tuple(events)

    def replace(self, rules: Sequence[Rule]) -> tuple[Event, ...]:
        """Replace the rules; unchanged rules keep their state, events of others are cleared.

        Raise ValueError for two rules of one name.
        """
        check_names(tuple(rules))
        kept = {rule.name: self._watches.get(rule.name) for rule in rules}
        watches = {
            rule.name: watch if (watch := kept[rule.name]) is not None and watch.rule == rule else _watch(rule)
            for rule in rules
        }
        dropped = [watch for name, watch in self._watches.items() if watches.get(name) is not watch]
        time_ns = self._last.time_ns if self._last is not None else 0
        self._watches = watches
        return tuple(event for watch in dropped for event in watch.clear_all(time_ns))

    def take_not_judged(self) -> int:
        """Return how many observations found `max_subjects` conditions remembered already, since the last call."""
        not_judged, self._not_judged = self._not_judged, 0
        return not_judged

    def open_events(self) -> tuple[Event, ...]:
        """Return the events that were raised and are not cleared yet."""
        return tuple(event for watch in self._watches.values() for event in watch.open_events())


def _watch(rule: Rule) -> Watch:
    return LimitWatch(rule) if rule.change is None else ChangeWatch(rule, rule.change)


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
        """Evaluate the rules on a snapshot of now; return what that raised and cleared."""
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
        """Call `sink` with each step's events, if there are any; return what ends that."""
        self._sinks.append(sink)
        return lambda: self._sinks.remove(sink)

    async def run(self) -> None:
        """Step at the settings' interval until cancelled."""
        while True:
            self._publish(await asyncio.to_thread(self._observe))
            await asyncio.sleep(self._settings.interval_ns / 1e9)

    def _publish(self, events: tuple[Event, ...]) -> None:
        if not events:
            return
        self._collector.counters[Count.EVENTS] += len(events)
        self._kept.extend(events)
        for sink in self._sinks:
            sink(events)
