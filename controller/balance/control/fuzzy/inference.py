"""Two ways to turn matching rules into a number: Mamdani's centre of area, Sugeno's weighted mean.

Implemented here because a table of two inputs takes a page, and because scikit-fuzzy's control interface solves a graph
of rules for each evaluation, which takes milliseconds; the tests compare this with that library's results for the same
rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from controller.balance.control.fuzzy.tables import Rules
from controller.balance.control.fuzzy.words import PEAKS, SPACING, WORDS, memberships

Strengths = list[float]
"""Strength of each word of the result, 0 to 1."""


class Method(StrEnum):
    """Method of turning matching rules into a number."""

    MAMDANI = "mamdani"
    SUGENO = "sugeno"


_PEAKS: Final = tuple(PEAKS[word] for word in WORDS)
_GRID: Final = np.linspace(-1.0 - SPACING, 1.0 + SPACING, 385)
"""48 steps per word; it reaches one word beyond both ends, so that the outer words' areas are whole, too."""
_TRIANGLES: Final = np.maximum(1.0 - np.abs(_GRID[None, :] - np.array(_PEAKS)[:, None]) / SPACING, 0.0)


def infer(method: Method, tables: Sequence[Rules], error: float, change: float) -> tuple[float, ...]:
    """Return each table's result, -1 to 1, for an error and its change, both in shares of their range."""
    errors, changes = memberships(error), memberships(change)
    if method is Method.SUGENO:
        return tuple(_weighted_mean(rules, errors, changes) for rules in tables)
    return tuple(_centre_of_area(_strengths(rules, errors, changes)) for rules in tables)


def _weighted_mean(rules: Rules, errors: Sequence[tuple[int, float]], changes: Sequence[tuple[int, float]]) -> float:
    """Return the weighted mean of the words' peaks (Sugeno, order 0); "and" is the product, so weights add to 1."""
    return sum(
        error_fits * change_fits * _PEAKS[rules[row][column]]
        for row, error_fits in errors
        for column, change_fits in changes
    )


def _strengths(rules: Rules, errors: Sequence[tuple[int, float]], changes: Sequence[tuple[int, float]]) -> Strengths:
    """Return the strength of each word: "and" is the minimum of both, "or" the maximum over all rules for a word."""
    found = [0.0] * len(WORDS)
    for row, error_fits in errors:
        for column, change_fits in changes:
            wanted = rules[row][column]
            found[wanted] = max(found[wanted], min(error_fits, change_fits))
    return found


def _centre_of_area(strengths: Strengths) -> float:
    """Return the centre of the area under all words' triangles, each cut off at its strength (Mamdani)."""
    words = [word for word, strength in enumerate(strengths) if strength > 0.0]
    if len(words) == 1:
        return _PEAKS[words[0]]
    cut = np.minimum(_TRIANGLES[words], np.array([[strengths[word]] for word in words]))
    height = cut.max(axis=0)
    return float(height @ _GRID / height.sum())
