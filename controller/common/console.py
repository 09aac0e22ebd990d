"""Console that commands print to: the terminal, or plain text wide enough for tables."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rich.console import Console
from rich.segment import Segment

from dataplane.errors import plain

_PLAIN_WIDTH = 140


class _PlainConsole(Console):
    """Writes only its own escape sequences: those in others' text are spelled out."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        return super()._render_buffer(
            one if one.control else Segment(plain(one.text), one.style, one.control) for one in buffer
        )


def plain_or_terminal() -> Console:
    """Return the console; where there is no terminal, and no COLUMNS, wide enough that tables lose nothing."""
    found = _PlainConsole()
    is_told = os.environ.get("COLUMNS", "").isdecimal()
    return found if found.is_terminal or is_told else _PlainConsole(width=max(found.width, _PLAIN_WIDTH))
