"""Where commands print: the terminal, or plain text of a width that tables fit into."""

from __future__ import annotations

import os

from rich.console import Console

_PLAIN_WIDTH = 140


def plain_or_terminal() -> Console:
    """Return the console; where there is no terminal, and no COLUMNS, wide enough that tables lose nothing."""
    found = Console()
    is_told = os.environ.get("COLUMNS", "").isdecimal()
    return found if found.is_terminal or is_told else Console(width=max(found.width, _PLAIN_WIDTH))
