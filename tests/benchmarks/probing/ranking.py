"""Rank two places by speed, as real runs show and as predicted, and detect ties.

The rule was fixed before there were results: two places differ for a task if their mean real run times differ by more
than TIE, or, if they are closer than that, if repeated real runs tell them apart: by more than two standard errors of
the means' difference, and by more than 1 %. Otherwise the pair is a tie and counts neither as right nor as wrong, for
either ranking; the number of ties is reported.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

TIE: Final = 0.05
"""Relative difference between real runs of the same task in the same place."""
_LEAST: Final = 0.01
_DEVIATIONS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Score:
    """Pairs ranked correctly out of those that differ, and the number of ties."""

    right: int
    decided: int
    tied: int

    @property
    def share(self) -> float | None:
        """The part that was right; None where no pair differs."""
        return self.right / self.decided if self.decided else None

    def __add__(self, other: Score) -> Score:
        return Score(self.right + other.right, self.decided + other.decided, self.tied + other.tied)


def is_near(times: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether real runs in two places are so close that they are repeated."""
    return _difference(fmean(times), fmean(other)) <= TIE


def quicker(times: Sequence[float], other: Sequence[float]) -> int:
    """Return -1 if the first place's real runs are the shorter ones, 1 if the other's, 0 for a tie."""
    first, second = fmean(times), fmean(other)
    if is_near(times, other):
        if min(len(times), len(other)) < 2 or _difference(first, second) <= _LEAST:
            return 0
        error = math.sqrt(variance(times) / len(times) + variance(other) / len(other))
        if abs(first - second) <= _DEVIATIONS * error:
            return 0
    return -1 if first < second else 1


def score(real: Mapping[str, Sequence[float]], figures: Mapping[str, float]) -> Score:
    """Return how well figures (the less the quicker), by place, rank the places' real run times."""
    right = decided = tied = 0
    for centre, other in itertools.combinations(sorted(real), 2):
        order = quicker(real[centre], real[other])
        tied += order == 0
        decided += order != 0
        right += order != 0 and (figures[centre] < figures[other]) == (order < 0) and figures[centre] != figures[other]
    return Score(right, decided, tied)


def _difference(value: float, other: float) -> float:
    return abs(value - other) / min(value, other)
