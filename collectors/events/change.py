"""Change points: levels are learned, then both sums of what exceeds their slack are followed until one passes a limit.

E. S. Page, Continuous inspection schemes, Biometrika 41 (1954). Deviations are cut at half of the limit, so that no
single observation makes a change. While a level holds, mean and deviation follow it slowly. Many figures are followed
side by side; `tests/collectors/events/reference_rules.py` has the same for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collectors.events.rules import ChangeSettings
from collectors.statistics.columns import Numbers, Places

_Rows = NDArray[Any]

_RUN: Final = np.dtype([("total", "f8"), ("sum", "f8"), ("count", "f8")])
"""The sum in one direction, and the values since it left 0."""

_ROW: Final = np.dtype([("mean", "f8"), ("squares", "f8"), ("count", "f8"), ("up", _RUN), ("down", _RUN)])


@dataclass(frozen=True, slots=True)
class LevelChanges:
    """Changes of levels: indices among the observations, and the mean levels before and after."""

    places: Places
    before: Numbers
    after: Numbers


class Levels:
    """Follows figures, one per row; rows are any numbers from 0 on, and begin without a level."""

    def __init__(self, settings: ChangeSettings) -> None:
        self._settings = settings
        self._rows: _Rows = np.zeros(0, _ROW)

    def forget(self, row: int) -> None:
        """Reset a row."""
        self._rows[row] = 0

    def level(self, row: int) -> float | None:
        """Return the level that holds now; None while it is being learned."""
        row_state = self._rows[row]
        return float(row_state["mean"]) if row_state["count"] >= self._settings.learn else None

    def is_near(self, row: int, level: float) -> bool:
        """Return whether a row's present level is the given one, within twice the slack, at least one deviation."""
        row_state = self._rows[row : row + 1]
        reach = max(2 * self._settings.slack, 1.0) * self.deviations(row_state)
        return bool((np.abs(row_state["mean"] - level) <= reach)[0])

    def observe(self, rows: Places, values: Numbers) -> LevelChanges:
        """Take a value for each of some rows, none twice; return the changes that they complete.

        A new level is then learned from the change's own observations.
        """
        self._make_room(rows)
        states = self._rows[rows]
        learning = states["count"] < self._settings.learn
        (judged,) = np.nonzero(~learning)
        # Figures as far apart as floats go have no finite deviation.
        with np.errstate(over="ignore", invalid="ignore"):
            changes = self._judge(states, judged, values)
            states[learning] = _learned(states[learning], values[learning])
        self._rows[rows] = states
        return changes

    def deviations(self, states: _Rows) -> Numbers:
        """Return the standard deviations that observations are measured by."""
        variance = states["squares"] / np.maximum(states["count"] - 1, 1)
        floor = np.maximum(self._settings.least_deviation, self._settings.least_share * np.abs(states["mean"]))
        # Nothing may divide by zero: a figure that was always 0 changes with the first that is not.
        result: Numbers = np.maximum(np.maximum(np.sqrt(variance), floor), 1e-12)
        return result

    def _make_room(self, rows: Places) -> None:
        needed = int(rows.max(initial=-1)) + 1
        if needed > len(self._rows):
            more = np.zeros(max(needed, 2 * len(self._rows)), _ROW)
            more[: len(self._rows)] = self._rows
            self._rows = more

    def _judge(self, states: _Rows, judged: Places, values: Numbers) -> LevelChanges:
        judged_states, values = states[judged], values[judged]
        most = self._settings.limit / 2
        deviation = self.deviations(judged_states)
        score = np.clip((values - judged_states["mean"]) / deviation, -most, most)
        rises, falls = self._add(judged_states["up"], score, values), self._add(judged_states["down"], -score, values)
        changed = rises | falls
        calm = ~changed & (np.maximum(judged_states["up"]["total"], judged_states["down"]["total"]) < most)
        self._follow(judged_states, calm, score * deviation)
        runs = np.where(rises, judged_states["up"], judged_states["down"])[changed]
        changes = LevelChanges(judged[changed], judged_states["mean"][changed], runs["sum"] / runs["count"])
        judged_states[changed] = 0
        judged_states["mean"][changed], judged_states["count"][changed] = changes.after, 1
        states[judged] = judged_states
        return changes

    def _add(self, runs: _Rows, excess: Numbers, values: Numbers) -> NDArray[np.bool_]:
        """Add to the sums; return which have passed the limit."""
        total = runs["total"] + (excess - self._settings.slack)
        runs["total"], runs["sum"], runs["count"] = total, runs["sum"] + values, runs["count"] + 1
        # CUSUM: a sum that falls to 0 begins anew, as no change began before.
        runs[total <= 0] = 0
        return runs["total"] > self._settings.limit

    def _follow(self, states: _Rows, calm: NDArray[np.bool_], away: Numbers) -> None:
        """Move mean and squares towards calm observations, each of a small fixed weight."""
        weight = 1 / (4 * self._settings.learn)
        away = np.where(calm, (states["mean"] + away) - states["mean"], 0.0)
        grown = weight * (away * away * (states["count"] - 1) - states["squares"])
        states["squares"] += np.where(calm, grown, 0.0)
        states["mean"] += weight * away


def _learned(states: _Rows, values: Numbers) -> _Rows:
    states["count"] += 1
    before = values - states["mean"]
    states["mean"] += before / states["count"]
    states["squares"] += before * (values - states["mean"])
    return states
