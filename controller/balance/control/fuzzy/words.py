"""Seven words for a quantity from -1 to 1, and the membership of a value in each (fuzzification)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Word(StrEnum):
    """Size and sign of a quantity, from negative big to positive big."""

    NB = "NB"
    NM = "NM"
    NS = "NS"
    ZO = "ZO"
    PS = "PS"
    PM = "PM"
    PB = "PB"

    @property
    def peak(self) -> float:
        """Return the value with full membership in the word: -1 for NB, 0 for ZO, 1 for PB, a third apart."""
        return PEAKS[self]


WORDS: Final = tuple(Word)
SPACING: Final = 1.0 / 3.0
"""Distance between the peaks of neighbouring words; a word extends from one neighbour's peak to the other's."""
PEAKS: Final = {word: (index - 3) * SPACING for index, word in enumerate(WORDS)}


def memberships(value: float) -> tuple[tuple[int, float], ...]:
    """Return the indices of the words that fit a value, and their memberships: triangles, so one or two that add to 1.

    Beyond -1 and 1 the outermost word has full membership.
    """
    place = min(max((value + 1.0) / SPACING, 0.0), 6.0)
    below = min(int(place), 5)
    share = place - below
    if share == 0.0:
        return ((below, 1.0),)
    if share == 1.0:
        return ((below + 1, 1.0),)
    return ((below, 1.0 - share), (below + 1, share))
