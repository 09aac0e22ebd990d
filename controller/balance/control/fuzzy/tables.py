"""The rules: the change of kp, ki and kd, as words, for each word of the error and of its change.

A row is the error, NB at the top to PB; a column is its change per sample, NB to PB. The tables are symmetric: the
entry for (e, ec) is also that for (-e, -ec), as a loop has no preferred side. They interpolate the expert rule between
its ranges:

- kp: more where the error is large or grows; less half-way where it falls quickly by itself, to avoid overshoot;
- ki: nothing far away and while it moves quickly; more near the balance and quiet, to remove the remaining error;
- kd: more near the balance and moving, to brake it; less far away, where it would only slow the approach.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from controller.balance.errors import GainsError
from dataplane.config import Strict


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
    position = min(max((value + 1.0) / SPACING, 0.0), 6.0)
    below = min(int(position), 5)
    share = position - below
    if share == 0.0:
        return ((below, 1.0),)
    if share == 1.0:
        return ((below + 1, 1.0),)
    return ((below, 1.0 - share), (below + 1, share))


Lines = Annotated[tuple[str, ...], msgspec.Meta(min_length=7, max_length=7)]
Rules = tuple[tuple[int, ...], ...]
"""Indices of words, by index of the error's word and index of its change's."""

KP: Final = (
    "PB PB PB PM PM PS PS",
    "PM PM PM PS ZO NS NS",
    "PS PS ZO NS NS NM NM",
    "PS ZO ZO ZO ZO ZO PS",
    "NM NM NS NS ZO PS PS",
    "NS NS ZO PS PM PM PM",
    "PS PS PM PM PB PB PB",
)
KI: Final = (
    "NB NB NB NB NB NB NB",
    "NB NB NM NM NM NB NB",
    "NM NS ZO PS ZO NS NM",
    "NM NS PM PB PM NS NM",
    "NM NS ZO PS ZO NS NM",
    "NB NB NM NM NM NB NB",
    "NB NB NB NB NB NB NB",
)
KD: Final = (
    "NS NS NM NM NM NS ZO",
    "ZO ZO NS NS NS ZO PS",
    "PM PS ZO NS PS PM PB",
    "PB PM PS ZO PS PM PB",
    "PB PM PS NS ZO PS PM",
    "PS ZO NS NS NS ZO ZO",
    "ZO NS NM NM NM NS NS",
)


class Tables(Strict, frozen=True):
    """Seven lines of seven words for each gain; raises GainsError for a malformed line."""

    kp: Lines = KP
    """Changes of kp."""
    ki: Lines = KI
    """Changes of ki."""
    kd: Lines = KD
    """Changes of kd."""

    def __post_init__(self) -> None:
        for gain, lines in (("kp", self.kp), ("ki", self.ki), ("kd", self.kd)):
            rules_of(gain, lines)


def rules_of(gain: str, lines: Sequence[str]) -> Rules:
    """Return a table's lines as indices of words; raise GainsError naming gain and line for a malformed one."""
    if len(lines) != len(WORDS):
        raise GainsError(f"fuzzy rules of {gain}: {len(lines)} lines, expected 7")
    return tuple(_row(gain, number, line) for number, line in enumerate(lines, 1))


def _row(gain: str, number: int, line: str) -> tuple[int, ...]:
    words = line.split()
    unknown = next((word for word in words if word not in set(WORDS)), None)
    if unknown is not None:
        raise GainsError(f"fuzzy rules of {gain}, line {number}: unknown word {unknown!r}; known: {', '.join(WORDS)}")
    if len(words) != len(WORDS):
        raise GainsError(f"fuzzy rules of {gain}, line {number}: {len(words)} words, expected 7")
    return tuple(WORDS.index(Word(word)) for word in words)
