"""Rules over snapshots: a pure step from one snapshot to the events that it raises and clears, and what it remembers.

A figure that the snapshot does not know neither raises nor clears. An open event is cleared when its condition has been
over for long enough, when its subject is no longer in the snapshot, or when its rule is taken away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from collectors.events.conditions import ChangeCondition, Condition, LimitCondition
from collectors.events.figures import FIGURES, Reading, State, companions, count, state_of, subjects
from collectors.events.rules import Rule, check_names
from collectors.values import Event, ReporterState, Snapshot, Subject


class EventEngine:
    """Evaluates rules, snapshot by snapshot; memory is bounded by `max_subjects`."""

    def __init__(self, rules: Sequence[Rule] = (), max_subjects: int = 65_536) -> None:
        check_names(tuple(rules))
        self._watches = {rule.name: _Watch(rule) for rule in rules}
        self._max_subjects = max_subjects
        self._last: Snapshot | None = None
        self._not_judged = 0

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force."""
        return tuple(watch.rule for watch in self._watches.values())

    def observe(self, snapshot: Snapshot) -> tuple[Event, ...]:
        """Return what a snapshot raises and clears; a snapshot that is not newer than the last says nothing."""
        last = self._last
        if last is not None and snapshot.taken_ns <= last.taken_ns:
            return ()
        events: list[Event] = []
        room = self._max_subjects - sum(len(watch.conditions) for watch in self._watches.values())
        for watch in self._watches.values():
            before = len(watch.conditions)
            events += watch.observe(last, snapshot, room)
            room -= len(watch.conditions) - before
            self._not_judged += watch.take_passed_over()
        self._last = snapshot
        return tuple(events)

    def replace(self, rules: Sequence[Rule]) -> tuple[Event, ...]:
        """Put these rules in force; rules that stay as they are keep what they remember, events of others are cleared.

        Raise ValueError for two rules of one name.
        """
        check_names(tuple(rules))
        kept = {rule.name: self._watches.get(rule.name) for rule in rules}
        watches = {
            rule.name: watch if (watch := kept[rule.name]) is not None and watch.rule == rule else _Watch(rule)
            for rule in rules
        }
        dropped = [watch for name, watch in self._watches.items() if watches.get(name) is not watch]
        time_ns = self._last.taken_ns if self._last is not None else 0
        self._watches = watches
        return tuple(event for watch in dropped for event in watch.clear_all(time_ns))

    def take_not_judged(self) -> int:
        """Return how many observations found `max_subjects` conditions remembered already, since the last call."""
        not_judged, self._not_judged = self._not_judged, 0
        return not_judged

    def open_events(self) -> tuple[Event, ...]:
        """Return the events that were raised and are not cleared yet."""
        conditions = (entry for watch in self._watches.values() for entry in watch.conditions.values())
        return tuple(condition.raised for condition in conditions if condition.raised is not None)


class _Watch:
    """One rule with what it remembers of its subjects."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.conditions: dict[Subject, Condition] = {}
        self._read: Reading = FIGURES[rule.scope][rule.figure]
        self._matches: dict[Subject, bool] = {}
        self._passed_over = 0

    def observe(self, last: Snapshot | None, snapshot: Snapshot, room: int) -> Iterator[Event]:
        """Yield what this snapshot raises and clears."""
        for subject, state in subjects(snapshot, self.rule.scope):
            value = self._value(last, snapshot, subject, state)
            if value is None or not self._judged(subject, state):
                continue
            condition = self.conditions.get(subject)
            if condition is None:
                if self._is_calm(value):
                    continue
                if room <= 0:
                    self._passed_over += 1
                    continue
                room -= 1
                condition = self.conditions[subject] = self._new(last, subject)
            yield from self._step(condition, snapshot.taken_ns, subject, state, value)
        yield from self._clear_missing(snapshot)

    def clear_all(self, time_ns: int) -> Iterator[Event]:
        """Yield the end of every open event."""
        for condition in self.conditions.values():
            if condition.raised is not None:
                yield condition.end(time_ns)

    def take_passed_over(self) -> int:
        """Return how many observations found no room since the last call."""
        passed_over, self._passed_over = self._passed_over, 0
        return passed_over

    def _step(
        self, condition: Condition, time_ns: int, subject: Subject, state: State, value: float
    ) -> Iterator[Event]:
        for event in condition.observe(time_ns, subject, value):
            beside = companions(self.rule.scope, state, time_ns, self.rule.figure)
            yield condition.witnessed(event, beside)
        if condition.is_idle:
            del self.conditions[subject]

    def _new(self, last: Snapshot | None, subject: Subject) -> Condition:
        if self.rule.change is not None:
            return ChangeCondition(self.rule, self.rule.change)
        condition = LimitCondition(self.rule)
        state = None if last is None else state_of(last, self.rule.scope, subject)
        value = None if state is None or self.rule.per_second else self._read(state)
        if last is not None and value is not None:
            condition.remember(last.taken_ns, value)
        return condition

    def _is_calm(self, value: float) -> bool:
        """Return whether a value says nothing by itself: most do, and nothing is kept for them."""
        if self.rule.above is not None:
            return value <= self.rule.above
        return self.rule.below is not None and value >= self.rule.below

    def _judged(self, subject: Subject, state: State) -> bool:
        if self.rule.least_samples and not isinstance(state, ReporterState) and state.samples < self.rule.least_samples:
            return False
        if not self.rule.match:
            return True
        matches = self._matches.get(subject)
        if matches is None:
            name = str(subject)
            matches = any(fnmatchcase(name, pattern) for pattern in self.rule.match)
            self._matches[subject] = matches
        return matches

    def _value(self, last: Snapshot | None, snapshot: Snapshot, subject: Subject, state: State) -> float | None:
        value = self._read(state)
        if value is None or not self.rule.per_second:
            return value
        before = None if last is None else state_of(last, self.rule.scope, subject)
        value_before = None if before is None else self._read(before)
        if last is None or value_before is None:
            return None
        return (value - value_before) * 1e9 / (snapshot.taken_ns - last.taken_ns)

    def _clear_missing(self, snapshot: Snapshot) -> Iterator[Event]:
        scope = self.rule.scope
        missing = [subject for subject in self.conditions if state_of(snapshot, scope, subject) is None]
        for subject in missing:
            condition = self.conditions.pop(subject)
            if condition.raised is not None:
                yield condition.end(snapshot.taken_ns)
        if len(self._matches) > 2 * count(snapshot, scope) + 256:
            self._matches.clear()
