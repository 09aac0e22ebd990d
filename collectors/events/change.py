"""Change points: a level is learned, then both sums of what exceeds its slack are followed until one passes a limit.

E. S. Page, Continuous inspection schemes, Biometrika 41 (1954). Deviations are cut at half of the limit, so that no
single observation makes a change. While the level holds, mean and deviation follow it slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from collectors.events.rules import ChangeSettings


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
        self._squares += weight * ((value - self._mean) ** 2 * (self._count - 1) - self._squares)
        self._mean += weight * (value - self._mean)
