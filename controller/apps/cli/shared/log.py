"""Log formats for daemons: for people, for programs, or bare if the receiver adds time and name."""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from controller.apps.cli.shared.log_options import OPTIONS, LogFormat

_REPEAT_S: Final = 1.0
_MOST_TEXTS: Final = 64
"""Texts that are remembered; with more at once, some are repeated."""


class TextFormatter(logging.Formatter):
    """Time in UTC, level, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802, ARG002 - logging's
        """Return the time with milliseconds."""
        return _time(record)


class JsonFormatter(logging.Formatter):
    """An object with `time`, `level`, `daemon`, `logger`, `message` and, of an exception, `exception`."""

    def __init__(self, daemon: str) -> None:
        super().__init__()
        self._daemon = daemon

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "daemon": self._daemon,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


class PlainFormatter(logging.Formatter):
    """The daemon and the message, with the level where that is above INFO."""

    def __init__(self, daemon: str) -> None:
        super().__init__("%(message)s")
        self._daemon = daemon

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        level = f"{record.levelname}: " if record.levelno > logging.INFO else ""
        return f"millrace {self._daemon}: {level}{super().format(record)}"


class Repeats(logging.Filter):
    """Leaves out warnings that repeat one of the last second, such as those of several clients of one lost server.

    The next of the same text has their number.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: OrderedDict[tuple[int, str], _Repeated] = OrderedDict()
        self._lock = Lock()  # handlers call filters without their own

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record; may be called from any thread."""
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            return self._is_new(record)

    def _is_new(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        key = (record.levelno, text)
        last = self._last.get(key)
        if last is not None and 0 <= record.created - last.logged_s < _REPEAT_S:
            last.left_out += 1
            return False
        if last is not None and last.left_out:
            record.msg, record.args = f"{text} (and {last.left_out} times before)", None
        self._last[key] = _Repeated(record.created)
        self._last.move_to_end(key)
        if len(self._last) > _MOST_TEXTS:
            self._last.popitem(last=False)
        return True


@dataclass(slots=True)
class _Repeated:
    """Time at which a text was logged, and the number of records left out since."""

    logged_s: float
    left_out: int = 0


def formatter_of(daemon: str, form: LogFormat) -> logging.Formatter:
    """Return the formatter of a daemon's records."""
    match form:
        case LogFormat.TEXT:
            return TextFormatter()
        case LogFormat.JSON:
            return JsonFormatter(daemon)
        case LogFormat.PLAIN:
            return PlainFormatter(daemon)


def log_to_stderr(daemon: str) -> None:
    """Send the daemon's log to stderr, one line per record, in the command line's format."""
    options = OPTIONS.get()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_of(daemon, options.form))
    handler.addFilter(Repeats())
    logging.basicConfig(handlers=[handler], level=options.level.upper())
    # A line for each request to the API server says nothing.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
