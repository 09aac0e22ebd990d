"""Console that commands print to: the terminal, or plain text wide enough for tables."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment

from dataplane.errors import plain

_PLAIN_WIDTH = 140


class _PlainConsole(Console):
    """Writes only its own escape sequences; those in other text are spelled out."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            segment if segment.control else Segment(plain(segment.text), segment.style, segment.control)
            for segment in buffer
        )


def plain_or_terminal() -> Console:
    """Return the console; without a terminal and COLUMNS, one wide enough that tables lose nothing."""
    console = _PlainConsole()
    is_told = os.environ.get("COLUMNS", "").isdecimal()
    return console if console.is_terminal or is_told else _PlainConsole(width=max(console.width, _PLAIN_WIDTH))
