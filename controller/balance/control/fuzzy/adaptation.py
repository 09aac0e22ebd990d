"""Online adaptation of gains: start gains plus dKp, dKi, dKd from fuzzy inference on the error and its change."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Final

import msgspec
import numpy as np

from controller.balance.control.fuzzy.tables import PEAKS, SPACING, WORDS, Rules, Tables, memberships, rules_of
from controller.balance.values import Gains
from dataplane.config import Strict

# Two ways to turn matching rules into a number: Mamdani's centre of area, Sugeno's weighted mean.
#
# Implemented here because a table of two inputs takes a page, and because scikit-fuzzy's control interface solves a
# graph of rules for each evaluation, which takes milliseconds; the tests compare this with that library's results for
# the same rules.


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
    strengths = [0.0] * len(WORDS)
    for row, error_fits in errors:
        for column, change_fits in changes:
            wanted = rules[row][column]
            strengths[wanted] = max(strengths[wanted], min(error_fits, change_fits))
    return strengths


def _centre_of_area(strengths: Strengths) -> float:
    """Return the centre of the area under all words' triangles, each cut off at its strength (Mamdani)."""
    words = [word for word, strength in enumerate(strengths) if strength > 0.0]
    if len(words) == 1:
        return _PEAKS[words[0]]
    cut = np.minimum(_TRIANGLES[words], np.array([[strengths[word]] for word in words]))
    height = cut.max(axis=0)
    return float(height @ _GRID / height.sum())


Range = Annotated[float, msgspec.Meta(gt=0.0, le=2.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class FuzzySettings(Strict, frozen=True):
    """Settings of the adaptation of gains to the error and its change."""

    method: Method = Method.SUGENO
    """mamdani: centre of area; sugeno: weighted mean, ten times as fast and without corners."""
    error_range: Range = 0.9
    """The error that counts as big."""
    change_range: Range = 0.3
    """The change per sample that counts as big."""
    kp_share: Share = 0.3
    """Maximum change of kp, as a share of the largest start gain."""
    ki_share: Share = 0.5
    """As `kp_share`, for ki."""
    kd_share: Share = 0.5
    """As `kp_share`, for kd."""
    rules: Tables = Tables()
    """The rules, seven lines of seven words for each gain."""


def adapted(settings: FuzzySettings, start: Gains, largest: Gains, error: float, change: float) -> Gains:
    """Return start gains plus the rules' changes for an error and its change per sample; none falls below 0.

    `largest` are the largest start gains, the base of the shares: a start gain of 0 can grow, too.
    """
    changes = infer(
        settings.method, _parsed(settings.rules), error / settings.error_range, change / settings.change_range
    )
    return Gains(
        max(start.kp + settings.kp_share * largest.kp * changes[0], 0.0),
        max(start.ki + settings.ki_share * largest.ki * changes[1], 0.0),
        max(start.kd + settings.kd_share * largest.kd * changes[2], 0.0),
    )


@lru_cache(maxsize=64)
def _parsed(tables: Tables) -> tuple[Rules, Rules, Rules]:
    return rules_of("kp", tables.kp), rules_of("ki", tables.ki), rules_of("kd", tables.kd)
