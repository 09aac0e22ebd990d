"""Suggestions for unknown words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.6


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the closest known word, None if none is close."""
    return next(iter(difflib.get_close_matches(word, list(known), 1, _NEAR)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown word: close matches, and all known words; '' if there are none."""
    words = list(known)
    if not words:
        return ""
    near = nearest(word, words)
    everything = f"known: {', '.join(words)}"
    return f"; {everything}" if near is None else f"; did you mean `{near}`? ({everything})"
