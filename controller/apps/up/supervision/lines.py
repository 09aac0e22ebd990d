"""The daemons' lines: to the terminal with name and time, and to rotating files."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from controller.apps.up.settings import LogSettings

MOST_LINE_BYTES: Final = 16_384
"""Maximum length of a line; longer ones are cut."""
Say = Callable[[str], None]


class LineSplitter:
    """Bytes in, whole lines out; a line without an end is cut at `MOST_LINE_BYTES`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that are complete now."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        while len(self._rest) > MOST_LINE_BYTES:
            whole.append(self._rest[:MOST_LINE_BYTES])
            self._rest = self._rest[MOST_LINE_BYTES:]
        return [_text(line) for line in whole if line.strip()]

    def end(self) -> list[str]:
        """Return the unfinished last line."""
        rest, self._rest = self._rest, b""
        return [_text(rest)] if rest.strip() else []


class _File(RotatingFileHandler):
    """Counts lines lost to a full disk, instead of printing a stack trace for each."""

    lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - logging's name and signature
        self.lost += 1


class DaemonLog:
    """Log of one daemon's output lines."""

    def __init__(self, name: str, folder: Path, settings: LogSettings, say: Say | None) -> None:
        """Write to `NAME.log` in a folder, and to `say`, with time and name."""
        self._name, self._say = name, say
        self._file = _File(folder / f"{name}.log", maxBytes=settings.max_bytes, backupCount=settings.files)
        self._file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    @property
    def lost(self) -> int:
        """Lines that could not be written."""
        return self._file.lost

    def write(self, line: str, *, only_file: bool = False) -> None:
        """Write a line; its prefix, the daemon's name, is not repeated."""
        line = line.removeprefix(f"millrace {self._name}: ")
        self._file.handle(logging.LogRecord(self._name, logging.INFO, "", 0, line, None, None))
        if self._say is not None and not only_file:
            now = datetime.now().astimezone()
            self._say(f"{now:%H:%M:%S} {self._name:<10} {line}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def terminal(echo: Say) -> Say:
    """Return a function that writes lines to a terminal until it disappears."""
    is_gone = False

    def say(line: str) -> None:
        nonlocal is_gone
        if not is_gone:
            # Set first, so that it stays set if writing fails.
            is_gone = True
            with suppress(BrokenPipeError, OSError):
                echo(line)
                is_gone = False

    return say


def _text(line: bytes) -> str:
    """Return a line without cursor movements."""
    decoded = line[:MOST_LINE_BYTES].decode("utf-8", errors="replace").rstrip()
    return "".join(letter if letter.isprintable() or letter == "\t" else "?" for letter in decoded)
