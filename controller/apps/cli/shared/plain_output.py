"""Print text from users, nodes and centres without terminal control characters.

All command output passes through here. Logs of containers and tasks and the output of commands run in containers are
bytes and go to the terminal unchanged, as with kubectl: the user asked for what the container or task writes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from dataplane.errors import plain

_STYLING: Final = "rich."


@contextmanager
def plain_output() -> Iterator[None]:
    """Print plain text to stdout and stderr within the block, except for Rich's table styles."""
    streams = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    for stream in streams:
        _make_plain(stream)
    try:
        yield
    finally:
        for stream in streams:
            del stream.write


def _make_plain(stream: TextIO) -> None:
    write = stream.write

    def write_plain(text: str) -> int:
        # Rich is given plain text by its console (controller/common/console.py): all escapes are its own.
        by = str(sys._getframe(1).f_globals.get("__name__", ""))  # noqa: SLF001
        return write(text if by.startswith(_STYLING) else plain(text))

    stream.write = write_plain  # type: ignore[method-assign]
