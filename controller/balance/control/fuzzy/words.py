"""Seven words for a quantity from -1 to 1, and how well each fits a value (fuzzification)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Word(StrEnum):
    """How large something is and on which side of zero, from negative big to positive big."""

    NB = "NB"
    NM = "NM"
    NS = "NS"
    ZO = "ZO"
    PS = "PS"
    PM = "PM"
    PB = "PB"

    @property
    def peak(self) -> float:
        """Return the value that the word fits wholly: -1 for NB, 0 for ZO, 1 for PB, a third apart."""
        return PEAKS[self]


WORDS: Final = tuple(Word)
SPACING: Final = 1.0 / 3.0
"""Between the peaks of words that are neighbours; a word fits from one neighbour's peak to the other's."""
PEAKS: Final = {word: (index - 3) * SPACING for index, word in enumerate(WORDS)}


def memberships(value: float) -> tuple[tuple[int, float], ...]:
    """Return the places of the words that fit a value, and how well, 0 to 1: triangles, so one or two that add to 1.

    Beyond -1 and 1 the outermost word fits wholly.
    """
    place = min(max((value + 1.0) / SPACING, 0.0), 6.0)
    below = min(int(place), 5)
    share = place - below
    if share == 0.0:
        return ((below, 1.0),)
    if share == 1.0:
        return ((below + 1, 1.0),)
    return ((below, 1.0 - share), (below + 1, share))
