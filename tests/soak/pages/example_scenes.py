"""Scenes made by a page's examples: those that tests/docs/test_examples.py runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from tests.soak.pages.workspace import Workspace


def _above(workspace: Workspace) -> None:
    """Run the examples above the block; their objects stay alive until the page ends."""
    _run(workspace, workspace.line)


def _examples(workspace: Workspace) -> None:
    """Run all examples of the page."""
    _run(workspace, sys.maxsize)


def _collector_above(workspace: Workspace) -> None:
    """Run the examples above the block, and serve their collector's feed."""
    _run(workspace, workspace.line, "feed")


def _run(workspace: Workspace, before: int, how: str = "") -> None:
    words = f"{sys.executable} -m tests.soak.pages.examples {workspace.page} {before} {how}"
    workspace.start(words, "the examples have run", 600)


SCENES: Final[dict[str, Callable[[Workspace], None]]] = {
    "above": _above,
    "collector above": _collector_above,
    "examples": _examples,
}
