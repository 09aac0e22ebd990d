"""Per-subject state of rules: when a limit was crossed or left again, and the observations behind it."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from collectors.events.rules import Rule
from collectors.statistics.columns import Integers, Numbers, Places
from collectors.values import Event, Evidence, Phase, Subject


class LimitCondition:
    """A limit with hold time and hysteresis, for one subject."""

    def __init__(self, rule: Rule) -> None:
        sign = 1.0 if rule.above is not None else -1.0
        limit = rule.above if rule.above is not None else rule.below
        if limit is None:
            raise ValueError(f"rule {rule.name!r} has no limit")
        self.raised: Event | None = None
        """The event that is open, if one is."""
        self._rule = rule
        self._seen: deque[Evidence] = deque(maxlen=rule.evidence)
        self._sign, self._limit = sign, limit
        self._clear = limit if rule.clear is None else rule.clear
        self._clear_hold_ns = rule.hold_ns if rule.clear_hold_ns is None else rule.clear_hold_ns
        self._since_ns: int | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no event is open or pending, so that forgetting the condition changes nothing."""
        return self.raised is None and self._since_ns is None

    def remember(self, time_ns: int, value: float) -> None:
        """Keep an observation as evidence."""
        self._seen.append(Evidence(time_ns, self._rule.figure, value))

    def observe(self, time_ns: int, subject: Subject, value: float) -> Event | None:
        """Take a value; return the event that it raises or clears."""
        self.remember(time_ns, value)
        if self.raised is None:
            if self._lasts(self._sign * value > self._sign * self._limit, time_ns, self._rule.hold_ns):
                return self._event(time_ns, subject, value, self._limit, Phase.RAISED)
        elif self._lasts(self._sign * value <= self._sign * self._clear, time_ns, self._clear_hold_ns):
            return self._event(time_ns, subject, value, self._clear, Phase.CLEARED)
        return None

    def keep(self, event: Event) -> Event:
        """Record an event that is sent, with all its evidence."""
        self.raised = event if event.phase is Phase.RAISED else None
        self._since_ns = None
        return event

    def end(self, time_ns: int) -> Event:
        """Return the clearing of the open event, by the last observation, whatever its figure does."""
        raised = self.raised
        if raised is None:
            raise ValueError("no event is open")
        self.raised = None
        seen = tuple(self._seen)
        return replace(raised, time_ns=time_ns, value=seen[-1].value, phase=Phase.CLEARED, evidence=seen)

    def _event(self, time_ns: int, subject: Subject, value: float, threshold: float, phase: Phase) -> Event:
        rule = self._rule
        evidence = tuple(self._seen)
        figure, severity = rule.figure, rule.severity
        return Event(time_ns, rule.name, subject, figure, value, threshold, phase, evidence, severity=severity)

    def _lasts(self, holds: bool, time_ns: int, hold_ns: int) -> bool:
        """Return whether the awaited condition has held, in every observation, for long enough."""
        if not holds:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = time_ns
        return time_ns - self._since_ns >= hold_ns


class EvidenceRings:
    """The newest observations of one figure, `kept` for each of any number of rows."""

    def __init__(self, figure: str, kept: int) -> None:
        self._figure = figure
        self._kept = kept
        self._times: Integers = np.zeros((0, kept), np.int64)
        self._values: Numbers = np.zeros((0, kept))
        self._counts: Integers = np.zeros(0, np.int64)

    def remember(self, rows: Places, time_ns: int, values: Numbers) -> None:
        """Keep an observation for each of some rows, none twice."""
        self._make_room(int(rows.max(initial=-1)) + 1)
        columns = self._counts[rows] % self._kept
        self._times[rows, columns] = time_ns
        self._values[rows, columns] = values
        self._counts[rows] += 1

    def newest(self, row: int) -> tuple[Evidence, ...]:
        """Return a row's observations, oldest first."""
        count = int(self._counts[row])
        columns = [number % self._kept for number in range(max(count - self._kept, 0), count)]
        times, values = self._times[row].tolist(), self._values[row].tolist()
        return tuple(Evidence(times[column], self._figure, values[column]) for column in columns)

    def forget(self, row: int) -> None:
        """Reset a row."""
        self._counts[row] = 0

    def _make_room(self, rows: int) -> None:
        missing = rows - len(self._counts)
        if missing > 0:
            # Doubling keeps the cost of copying constant per row.
            missing = max(missing, len(self._counts))
            self._times = np.concatenate([self._times, np.zeros((missing, self._kept), np.int64)])
            self._values = np.concatenate([self._values, np.zeros((missing, self._kept))])
            self._counts = np.concatenate([self._counts, np.zeros(missing, np.int64)])
