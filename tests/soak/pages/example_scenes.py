"""Scenes made by a page's examples: those that tests/docs/test_examples.py runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from tests.soak.pages.place import Place


def _above(place: Place) -> None:
    """Run the examples above the block; their objects stay alive until the page ends."""
    _run(place, place.line)


def _examples(place: Place) -> None:
    """Run all examples of the page."""
    _run(place, sys.maxsize)


def _collector_above(place: Place) -> None:
    """Run the examples above the block, and serve their collector's feed."""
    _run(place, place.line, "feed")


def _run(place: Place, before: int, how: str = "") -> None:
    words = f"{sys.executable} -m tests.soak.pages.examples {place.page} {before} {how}"
    place.start(words, "the examples have run", 600)


SCENES: Final[dict[str, Callable[[Place], None]]] = {
    "above": _above,
    "collector above": _collector_above,
    "examples": _examples,
}
