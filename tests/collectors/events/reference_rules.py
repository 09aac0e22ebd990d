"""Rules one subject after the other, the readable twin of `collectors.events`: what the tests hold that against."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from collectors.events.observation import states_of
from collectors.events.rules import ChangeSettings, Rule
from collectors.events.scopes import FIGURES, Reading, Scope, State, companions
from collectors.values import Event, Evidence, Phase, ReporterKey, ReporterState, Snapshot, Subject


@dataclass(frozen=True, slots=True)
class LevelChange:
    """A level that changed: from what to what, both means of observations."""

    before: float
    after: float


class _Run:
    """The sum in one direction, and the values since it left 0."""

    def __init__(self, settings: ChangeSettings) -> None:
        self._slack, self._limit = settings.slack, settings.limit
        self.total = self._sum = 0.0
        self._count = 0

    @property
    def mean(self) -> float:
        return self._sum / self._count

    def add(self, excess: float, value: float) -> bool:
        """Return whether the sum has passed its limit."""
        self.total += excess - self._slack
        if self.total <= 0:
            self.total = self._sum = 0.0
            self._count = 0
            return False
        self._sum += value
        self._count += 1
        return self.total > self._limit


class ChangeDetector:
    """Follows one figure; `observe` each value in order."""

    def __init__(self, settings: ChangeSettings) -> None:
        self._settings = settings
        self._begin(0.0, 0)

    @property
    def level(self) -> float | None:
        """The level that holds now; None while it is being learned."""
        return self._mean if self._count >= self._settings.learn else None

    @property
    def deviation(self) -> float:
        """The standard deviation that observations are measured by."""
        variance = self._squares / max(self._count - 1, 1)
        floor = max(self._settings.least_deviation, self._settings.least_share * abs(self._mean))
        # Nothing may divide by zero: a figure that was always 0 changes with the first that is not.
        return max(math.sqrt(variance), floor, 1e-12)

    def is_near(self, level: float) -> bool:
        """Return whether the present level is the given one, within twice the slack, at least one deviation."""
        return abs(self._mean - level) <= max(2 * self._settings.slack, 1.0) * self.deviation

    def observe(self, value: float) -> LevelChange | None:
        """Take a value; return the change that it completes. The new level is then learned from the change's own."""
        if self._count < self._settings.learn:
            self._learn(value)
            return None
        score = (value - self._mean) / self.deviation
        most = self._settings.limit / 2
        score = max(-most, min(most, score))
        for run, excess in ((self._up, score), (self._down, -score)):
            if run.add(excess, value):
                change = LevelChange(self._mean, run.mean)
                self._begin(change.after, 1)
                return change
        if max(self._up.total, self._down.total) < most:
            self._follow(self._mean + score * self.deviation)
        return None

    def _begin(self, mean: float, count: int) -> None:
        self._mean, self._squares, self._count = mean, 0.0, count
        self._up, self._down = _Run(self._settings), _Run(self._settings)

    def _learn(self, value: float) -> None:
        self._count += 1
        before = value - self._mean
        self._mean += before / self._count
        self._squares += before * (value - self._mean)

    def _follow(self, value: float) -> None:
        """Forget the oldest observations by as much as one new one weighs."""
        weight = 1 / (4 * self._settings.learn)
        self._squares += weight * ((value - self._mean) * (value - self._mean) * (self._count - 1) - self._squares)
        self._mean += weight * (value - self._mean)


class _Observed:
    """Observations, and the open event."""

    def __init__(self, rule: Rule) -> None:
        self.raised: Event | None = None
        self._rule = rule
        self._seen: deque[Evidence] = deque(maxlen=rule.evidence)

    def remember(self, time_ns: int, value: float) -> None:
        """Keep an observation as evidence."""
        self._seen.append(Evidence(time_ns, self._rule.figure, float(value)))

    def end(self, time_ns: int) -> Event:
        """Return the clearing of the open event, by the last observation."""
        raised = self.raised
        if raised is None:
            raise ValueError("no event is open")
        self.raised = None
        value = self._seen[-1].value if self._seen else raised.value
        return replace(raised, time_ns=time_ns, value=value, phase=Phase.CLEARED, evidence=tuple(self._seen))

    def witnessed(self, event: Event, beside: tuple[Evidence, ...]) -> Event:
        """Return an event with its evidence."""
        full = replace(event, evidence=(*event.evidence, *beside))
        if full.phase is Phase.RAISED:
            self.raised = full
        return full

    def _event(self, time_ns: int, subject: Subject, value: float, threshold: float, phase: Phase) -> Event:
        rule = self._rule
        return Event(time_ns, rule.name, subject, rule.figure, float(value), threshold, phase, tuple(self._seen))


class LimitCondition(_Observed):
    """A limit with hold time and hysteresis."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        sign = 1.0 if rule.above is not None else -1.0
        limit = rule.above if rule.above is not None else rule.below
        if limit is None:
            raise ValueError(f"rule {rule.name!r} has no limit")
        self._sign, self._limit = sign, limit
        self._clear = limit if rule.clear is None else rule.clear
        self._clear_hold_ns = rule.hold_ns if rule.clear_hold_ns is None else rule.clear_hold_ns
        self._since_ns: int | None = None

    @property
    def is_idle(self) -> bool:
        """True if no event is open or pending."""
        return self.raised is None and self._since_ns is None

    def observe(self, time_ns: int, subject: Subject, value: float) -> Iterator[Event]:
        """Take a value; yield the event that it raises or clears."""
        self.remember(time_ns, value)
        if self.raised is None:
            if self._lasts(self._sign * value > self._sign * self._limit, time_ns, self._rule.hold_ns):
                self.raised = self._event(time_ns, subject, value, self._limit, Phase.RAISED)
                self._since_ns = None
                yield self.raised
        elif self._lasts(self._sign * value <= self._sign * self._clear, time_ns, self._clear_hold_ns):
            self.raised = None
            self._since_ns = None
            yield self._event(time_ns, subject, value, self._clear, Phase.CLEARED)

    def _lasts(self, holds: bool, time_ns: int, hold_ns: int) -> bool:
        """Return whether the condition has held, in every observation, for long enough."""
        if not holds:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = time_ns
        return time_ns - self._since_ns >= hold_ns


class ChangeCondition(_Observed):
    """A level that is followed; a change is open until the level is back, or has lasted and is the usual one."""

    def __init__(self, rule: Rule, settings: ChangeSettings) -> None:
        super().__init__(rule)
        self._settings = settings
        self._detector = ChangeDetector(settings)
        self._usual: float | None = None

    @property
    def is_idle(self) -> bool:
        """Never: learned state would be lost."""
        return False

    def observe(self, time_ns: int, subject: Subject, value: float) -> Iterator[Event]:
        """Take a value; yield the change that it completes, or the end of one."""
        self.remember(time_ns, value)
        change = self._detector.observe(value)
        if self.raised is None:
            if change is not None:
                self._usual = change.before
                self.raised = self._event(time_ns, subject, change.after, change.before, Phase.RAISED)
                yield self.raised
        elif self._is_back(change) or time_ns - self.raised.time_ns >= self._settings.adopt_after_ns:
            threshold = self.raised.threshold
            self.raised = None
            yield self._event(time_ns, subject, value, threshold, Phase.CLEARED)

    def _is_back(self, change: LevelChange | None) -> bool:
        """Return whether a change led back to the usual level, or the level learned since is the usual one."""
        level = self._detector.level if change is None else change.after
        return level is not None and self._usual is not None and self._detector.is_near(self._usual)


def subjects(snapshot: Snapshot, scope: Scope) -> Iterator[tuple[Subject, State]]:
    """Yield what a rule of this scope looks at, in the snapshot's order."""
    match scope:
        case Scope.LINK:
            yield from snapshot.links.items()
        case Scope.PATH:
            yield from snapshot.paths.items()
        case Scope.REPORTER:
            for (node_id, hw_id), state in snapshot.reporters.items():
                yield ReporterKey(node_id, hw_id), state
        case Scope.JOB | Scope.CHILD:
            yield from states_of(snapshot, scope).items()


def state_of(snapshot: Snapshot, scope: Scope, subject: Subject) -> State | None:
    """Return a subject's state, None when the snapshot lacks it."""
    key = (subject.node_id, subject.hw_id) if isinstance(subject, ReporterKey) else subject
    return states_of(snapshot, scope).get(key)


def count(snapshot: Snapshot, scope: Scope) -> int:
    """Return how many subjects of a scope the snapshot has."""
    return len(states_of(snapshot, scope))


Condition = LimitCondition | ChangeCondition


class PlainEngine:
    """Evaluates rules, snapshot by snapshot; memory is bounded by `max_subjects`."""

    def __init__(self, rules: Sequence[Rule] = (), max_subjects: int = 65_536) -> None:
        self._watches = {rule.name: _Watch(rule) for rule in rules}
        self._max_subjects = max_subjects
        self._last: Snapshot | None = None
        self._not_judged = 0

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

    def take_not_judged(self) -> int:
        """Return how many observations found `max_subjects` conditions remembered already, since the last call."""
        not_judged, self._not_judged = self._not_judged, 0
        return not_judged

    def open_events(self) -> tuple[Event, ...]:
        """Return the events that were raised and are not cleared yet."""
        conditions = (entry for watch in self._watches.values() for entry in watch.conditions.values())
        return tuple(condition.raised for condition in conditions if condition.raised is not None)


class _Watch:
    """One rule with its memory of its subjects."""

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
