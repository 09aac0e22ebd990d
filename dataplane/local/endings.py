"""Reasons why supervised programs ended: exit status or signal, and the line of the output that tells.

The last line seldom does: it may be any log record, written long before or by another thread.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_MOST_BYTES: Final = 1 << 16
_ASKED: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that others send, so that nothing in the output is about them; the rest follow a fault of the program."""
_SEVERE: Final = frozenset({"ERROR", "CRITICAL"})
_RECORD: Final = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.,]+Z? (?P<level>[A-Z]+) [\w.]+: (?P<message>.*)", re.DOTALL)
_PLAIN: Final = re.compile(
    # A switch and a host's agent do not log in this form, but print their error in it.
    r"millrace (?!(?:switch|agent): )[\w-]+: (?:(?P<level>WARNING|ERROR|CRITICAL): )?(?P<message>.*)",
    re.DOTALL,
)
_PREFIX: Final = re.compile(r"millrace(?: switch| agent)?: ")
_TRACEBACK: Final = "Traceback (most recent call last):"
_WARNING: Final = re.compile(r"\S+:\d+: \w*Warning: ")


def how_ended(status: int) -> str:
    """Return "killed by SIGKILL" for -9, as subprocess numbers it, and "ended with status 1" for 1."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal has no name
        return f"killed by signal {-status}"


def why_ended(status: int, output: Sequence[str]) -> str:
    """Return how a program ended and the line of its output that tells why; without one, say so.

    `output` has the last lines that it wrote since its start.
    """
    how = how_ended(status)
    if status == 0 or -status in _ASKED:
        return how
    line = telling_line(output)
    if line is not None:
        return f"{how}: {line}"
    if status < 0:
        return how
    last = next((line for line in reversed(output) if line.strip()), None)
    return f"{how}: no output" if last is None else f"{how} without saying why; its last line: {last.strip()}"


def telling_line(output: Sequence[str]) -> str | None:
    """Return the last line about an error, without what precedes its message; None if there is none.

    That is an error record, the exception of a stack trace, or a line that is no log record.
    """
    number = next((number for number in range(len(output) - 1, -1, -1) if _error(output[number]) is not None), None)
    if number is None:
        return None
    if not _PREFIX.match(output[number]) and not _is_record(output[number]):
        for begin in range(number - 1, -1, -1):
            if _is_record(output[begin]):
                break
            if output[begin].startswith(_TRACEBACK):
                # An exception's text may have several lines: the first one follows the frames, which are indented.
                return next(message for line in output[begin:] if (message := _error(line)) is not None)
    return _error(output[number])


def read_lines(log: Path, begin: int = 0) -> list[str]:
    """Return the last lines of a log after a position in bytes; none of a log that is not there."""
    with suppress(OSError), log.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(min(begin, size), size - _MOST_BYTES))
        return file.read().decode("utf-8", errors="replace").splitlines()
    return []


def _error(line: str) -> str | None:
    """Return the message of a line that may tell of an error."""
    if not line.strip() or line[0].isspace() or line.startswith(_TRACEBACK) or _WARNING.match(line):
        return None
    level, message = _record_of(line)
    if level is not None:
        return message if level in _SEVERE else None
    return _PREFIX.sub("", line.strip(), count=1)


def _is_record(line: str) -> bool:
    return _record_of(line)[0] is not None


def _record_of(line: str) -> tuple[str | None, str]:
    """Return level and message of a log record in any of our formats; no level for another line."""
    if line.startswith("{"):
        with suppress(ValueError):
            fields = json.loads(line)
            if isinstance(fields, dict) and "level" in fields:
                return str(fields["level"]).upper(), str(fields.get("message"))
    record = _RECORD.match(line) or _PLAIN.match(line)
    return (None, line) if record is None else (record["level"] or "INFO", record["message"])
