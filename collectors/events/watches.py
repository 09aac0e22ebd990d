"""Rules at work: each checks its figure over all subjects at once, and keeps state only where needed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from collectors.events.change import Levels
from collectors.events.conditions import EvidenceRings, LimitCondition
from collectors.events.observation import Observation
from collectors.events.rules import ChangeSettings, Rule
from collectors.events.scopes import companions
from collectors.statistics.columns import Numbers, Places
from collectors.values import Event, Phase, Subject


class Watch(ABC):
    """One rule with the state of its subjects."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._matches: dict[Subject, bool] = {}
        self._passed_over = 0

    @property
    @abstractmethod
    def remembered(self) -> int:
        """Number of subjects for which state is kept."""

    @abstractmethod
    def observe(self, last: Observation | None, seen: Observation, room: int) -> Iterator[Event]:
        """Yield the events that a snapshot raises and clears; `room` is how many more subjects may be tracked."""

    @abstractmethod
    def open_events(self) -> Iterator[Event]:
        """Yield the events that were raised and are not cleared yet."""

    @abstractmethod
    def clear_all(self, time_ns: int) -> Iterator[Event]:
        """Yield the end of every open event."""

    def take_passed_over(self) -> int:
        """Return how many observations found no room since the last call."""
        passed_over, self._passed_over = self._passed_over, 0
        return passed_over

    def _values(self, last: Observation | None, seen: Observation) -> Numbers:
        """Return the rule's figures, NaN for those unknown or with too few samples."""
        scope, figure = self.rule.scope, self.rule.figure
        if not self.rule.per_second:
            values = seen.values(scope, figure)
        elif last is None:
            values = np.full(len(seen.subjects(scope)), np.nan)
        else:
            values = seen.growth(last, scope, figure)
        if self.rule.least_samples:
            values = np.where(seen.values(scope, "samples") < self.rule.least_samples, np.nan, values)
        return values

    def _is_meant(self, subject: Subject) -> bool:
        if not self.rule.match:
            return True
        matches = self._matches.get(subject)
        if matches is None:
            name = str(subject)
            matches = any(fnmatchcase(name, pattern) for pattern in self.rule.match)
            self._matches[subject] = matches
        return matches

    def _forget_matches(self, seen: Observation) -> None:
        if len(self._matches) > 2 * len(seen.subjects(self.rule.scope)) + 256:
            self._matches.clear()

    def _beside(self, event: Event, seen: Observation) -> Event:
        """Return an event with the figure's context as evidence."""
        state = seen.state(self.rule.scope, event.subject)
        beside = companions(self.rule.scope, state, seen.time_ns, self.rule.figure)
        return replace(event, evidence=(*event.evidence, *beside))


class LimitWatch(Watch):
    """A rule with a limit: no state is kept for subjects within it."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self._conditions: dict[Subject, LimitCondition] = {}

    @property
    def remembered(self) -> int:
        """Number of subjects for which state is kept."""
        return len(self._conditions)

    def open_events(self) -> Iterator[Event]:
        """Yield the events that were raised and are not cleared yet."""
        return (condition.raised for condition in self._conditions.values() if condition.raised is not None)

    def clear_all(self, time_ns: int) -> Iterator[Event]:
        """Yield the end of every open event."""
        for condition in self._conditions.values():
            if condition.raised is not None:
                yield condition.end(time_ns)

    def observe(self, last: Observation | None, seen: Observation, room: int) -> Iterator[Event]:
        """Yield the events that a snapshot raises and clears."""
        scope, values = self.rule.scope, self._values(last, seen)
        subjects = seen.subjects(scope)
        for index in self._worth_a_look(values, seen):
            subject = subjects[index]
            if not self._is_meant(subject):
                continue
            condition = self._conditions.get(subject)
            if condition is None:
                if room <= 0:
                    self._passed_over += 1
                    continue
                room -= 1
                condition = self._conditions[subject] = self._new(last, subject)
            event = condition.observe(seen.time_ns, subject, float(values[index]))
            if event is not None:
                yield condition.keep(self._beside(event, seen))
            if condition.is_idle:
                del self._conditions[subject]
        yield from self._clear_gone(seen)

    def _worth_a_look(self, values: Numbers, seen: Observation) -> list[int]:
        """Return the places, in order, of known values beyond the limit or of subjects that are remembered."""
        beyond = values > self.rule.above if self.rule.above is not None else values < self._below
        for subject in self._conditions:
            index = seen.place(self.rule.scope, subject)
            if index is not None and not np.isnan(values[index]):
                beyond[index] = True
        places: list[int] = np.flatnonzero(beyond).tolist()
        return places

    @property
    def _below(self) -> float:
        if self.rule.below is None:
            raise ValueError(f"rule {self.rule.name!r} has no limit")
        return self.rule.below

    def _new(self, last: Observation | None, subject: Subject) -> LimitCondition:
        condition = LimitCondition(self.rule)
        index = None if last is None or self.rule.per_second else last.place(self.rule.scope, subject)
        if last is not None and index is not None:
            value = float(last.values(self.rule.scope, self.rule.figure)[index])
            if not np.isnan(value):
                condition.remember(last.time_ns, value)
        return condition

    def _clear_gone(self, seen: Observation) -> Iterator[Event]:
        gone = [subject for subject in self._conditions if seen.place(self.rule.scope, subject) is None]
        for subject in gone:
            condition = self._conditions.pop(subject)
            if condition.raised is not None:
                yield condition.end(seen.time_ns)
        self._forget_matches(seen)


@dataclass(frozen=True, slots=True)
class _OpenChange:
    """An event, and the level before it."""

    raised: Event
    usual: float


class ChangeWatch(Watch):
    """A rule on changes of level; it learns the level of every subject.

    A change is open until the level is back, or has lasted and is the usual one.
    """

    def __init__(self, rule: Rule, settings: ChangeSettings) -> None:
        super().__init__(rule)
        self._settings = settings
        self._levels = Levels(settings)
        self._evidence = EvidenceRings(rule.figure, rule.evidence)
        self._row: dict[Subject, int] = {}
        self._free: list[int] = []
        self._open: dict[Subject, _OpenChange] = {}
        self._subjects: list[Subject] = []
        """In the order of the last snapshot, with each one's row (-1: none) and whether it is meant."""
        self._rows: Places = np.zeros(0, np.intp)
        self._meant: NDArray[np.bool_] = np.zeros(0, np.bool_)

    @property
    def remembered(self) -> int:
        """Number of subjects for which state is kept."""
        return len(self._row)

    def open_events(self) -> Iterator[Event]:
        """Yield the events that were raised and are not cleared yet."""
        return (change.raised for change in self._open.values())

    def clear_all(self, time_ns: int) -> Iterator[Event]:
        """Yield the end of every open event."""
        # A copy, as clearing an event removes it.
        for subject in list(self._open):
            yield self._end(subject, time_ns)

    def observe(self, last: Observation | None, seen: Observation, room: int) -> Iterator[Event]:
        """Yield the events that a snapshot raises and clears."""
        values = self._values(last, seen)
        gone = self._take_order(seen)
        is_known = self._meant & ~np.isnan(values)
        self._admit(is_known, room)
        (places,) = np.nonzero(is_known & (self._rows >= 0))
        rows = self._rows[places]
        self._evidence.remember(rows, seen.time_ns, values[places])
        changes = self._levels.observe(rows, values[places])
        changed = places[changes.places].tolist()
        change_at = dict(zip(changed, zip(changes.before.tolist(), changes.after.tolist(), strict=True), strict=True))
        for index in sorted({*changed, *self._open_places(seen, is_known)}):
            event = self._judge(self._subjects[index], seen.time_ns, float(values[index]), change_at.get(index))
            if event is not None:
                yield self._keep(self._beside(event, seen), change_at.get(index))
        yield from gone

    def _judge(self, subject: Subject, time_ns: int, value: float, change: tuple[float, float] | None) -> Event | None:
        """Return the event that a change of level raises, or that ends with this value."""
        row, opened = self._row[subject], self._open.get(subject)
        if opened is None:
            return None if change is None else self._event(subject, time_ns, change[1], change[0], Phase.RAISED)
        back = self._levels.level(row) is not None or change is not None
        if back and self._levels.is_near(row, opened.usual):
            return self._event(subject, time_ns, value, opened.raised.threshold, Phase.CLEARED)
        if time_ns - opened.raised.time_ns >= self._settings.adopt_after_ns:
            return self._event(subject, time_ns, value, opened.raised.threshold, Phase.CLEARED)
        return None

    def _keep(self, event: Event, change: tuple[float, float] | None) -> Event:
        """Record an event that is sent."""
        if event.phase is Phase.RAISED and change is not None:
            self._open[event.subject] = _OpenChange(event, change[0])
        else:
            del self._open[event.subject]
        return event

    def _event(self, subject: Subject, time_ns: int, value: float, threshold: float, phase: Phase) -> Event:
        evidence = self._evidence.newest(self._row[subject])
        return Event(
            time_ns,
            self.rule.name,
            subject,
            self.rule.figure,
            value,
            threshold,
            phase,
            evidence,
            severity=self.rule.severity,
        )

    def _end(self, subject: Subject, time_ns: int) -> Event:
        """Return the clearing of an open event, whatever its figure does."""
        raised = self._open.pop(subject).raised
        evidence = self._evidence.newest(self._row[subject])
        return replace(raised, time_ns=time_ns, value=evidence[-1].value, phase=Phase.CLEARED, evidence=evidence)

    def _open_places(self, seen: Observation, is_known: NDArray[np.bool_]) -> list[int]:
        places = (seen.place(self.rule.scope, subject) for subject in self._open)
        return [index for index in places if index is not None and is_known[index]]

    def _take_order(self, seen: Observation) -> list[Event]:
        """Index the snapshot's subjects; return the ends of events whose subject is gone."""
        subjects = seen.subjects(self.rule.scope)
        if subjects == self._subjects:
            return []
        there = set(subjects)
        gone = [subject for subject in self._row if subject not in there]
        ends = [self._end(subject, seen.time_ns) for subject in gone if subject in self._open]
        for subject in gone:
            row = self._row.pop(subject)
            self._levels.forget(row)
            self._evidence.forget(row)
            self._free.append(row)
        self._subjects = subjects
        self._rows = np.array([self._row.get(subject, -1) for subject in subjects], np.intp)
        self._meant = np.array([self._is_meant(subject) for subject in subjects], np.bool_)
        self._forget_matches(seen)
        return ends

    def _admit(self, is_known: NDArray[np.bool_], room: int) -> None:
        """Give rows to subjects that have none, as many as there is room for."""
        new = np.flatnonzero(is_known & (self._rows < 0)).tolist()
        self._passed_over += max(len(new) - max(room, 0), 0)
        for index in new[: max(room, 0)]:
            row = self._free.pop() if self._free else len(self._row)
            self._row[self._subjects[index]] = self._rows[index] = row
