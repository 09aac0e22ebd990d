"""What a rule remembers of one subject: since when its condition holds or is over, and the observations behind it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from collectors.events.change import ChangeDetector, LevelChange
from collectors.events.rules import ChangeSettings, Rule
from collectors.values import Event, Evidence, Phase, Subject


class Condition(Protocol):
    """One rule's view of one subject."""

    raised: Event | None
    """The event that is open, if one is."""

    @property
    def is_idle(self) -> bool:
        """Whether forgetting it changes nothing."""

    def observe(self, time_ns: int, subject: Subject, value: float) -> Iterator[Event]:
        """Take a value; yield what it raises or clears."""

    def end(self, time_ns: int) -> Event:
        """Return the clearing of the open event, whatever its figure does."""

    def witnessed(self, event: Event, beside: tuple[Evidence, ...]) -> Event:
        """Return an event with what stood beside it; it is the open event if it raises."""


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
        """Return an event with what stood beside it."""
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
        """Whether nothing is open and nothing is on its way."""
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
        """Return whether what is waited for has held, in every observation, for long enough."""
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
        """Never: what was learned would be lost."""
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
