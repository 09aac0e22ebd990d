"""Log formats for daemons: for people, for programs, or bare if the receiver adds time and name."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from controller.apps.cli.shared.log_options import OPTIONS, LogFormat


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
    logging.basicConfig(handlers=[handler], level=options.level.upper())
    # A line for each request to the API server says nothing.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
