"""What somebody may have meant who wrote a word that is none of those that are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NEAR = 0.6


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that comes nearest, None where none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), 1, _NEAR)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a sentence on an unknown word: what comes near, and all there are; '' if there are none."""
    words = list(known)
    if not words:
        return ""
    near = nearest(word, words)
    everything = f"known: {', '.join(words)}"
    return f"; {everything}" if near is None else f"; did you mean `{near}`? ({everything})"
