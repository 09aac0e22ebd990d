"""Options of the command line about logs; without `logging`, which commands that log nothing need not import."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class LogFormat(StrEnum):
    """Form of a log line."""

    TEXT = "text"
    """Time (UTC), level and name before the message."""
    JSON = "json"
    """One JSON object per line."""
    PLAIN = "plain"
    """The daemon before the message, and the level from warning on: for `millrace up` and journals."""


class LogLevel(StrEnum):
    """Minimum level."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Log options of a command; quiet ones print no ready line and no progress."""

    level: LogLevel = LogLevel.INFO
    form: LogFormat = LogFormat.TEXT
    quiet: bool = False


_DEFAULT: Final = LogOptions()
OPTIONS: Final = ContextVar("log options", default=_DEFAULT)
"""Options of the running command."""
