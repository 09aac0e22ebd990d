"""Rules over snapshots: a pure step from one snapshot to the events it raises and clears, and the next state.

A figure that the snapshot does not know neither raises nor clears. An open event is cleared when its condition has been
over for long enough, when its subject is no longer in the snapshot, or when its rule is taken away.
"""

from __future__ import annotations

from collections.abc import Sequence

from collectors.events.observation import Observation
from collectors.events.rules import Rule, check_names
from collectors.events.watches import ChangeWatch, LimitWatch, Watch
from collectors.values import Event, Snapshot


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
