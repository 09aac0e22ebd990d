"""Shared parts of the daemons' commands: the settings option, the ready line, the log."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from controller.apps.cli.log_options import OPTIONS, LogFormat
from dataplane.notify import notify


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
        found = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "daemon": self._daemon,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)


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
    """Return what writes a daemon's records."""
    match form:
        case LogFormat.TEXT:
            return TextFormatter()
        case LogFormat.JSON:
            return JsonFormatter(daemon)
        case LogFormat.PLAIN:
            return PlainFormatter(daemon)


def log_to_stderr(daemon: str) -> None:
    """Send the daemon's log to stderr, one line a record, as the command line wants it."""
    options = OPTIONS.get()
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_of(daemon, options.form))
    logging.basicConfig(handlers=[handler], level=options.level.upper())
    # A line for each request to the API server says nothing.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


__all__ = ["SettingsFile", "check_outputs", "log_to_stderr", "ready", "say", "working"]

_PROGRESS_S: Final = 3.0
"""Interval between progress messages of a long-running command."""

SettingsFile = Annotated[
    Path, typer.Option("--settings", "-s", metavar="FILE", help="TOML or YAML; unknown keys are errors.")
]


def ready(daemon: str) -> Callable[[str], None]:
    """Return what prints a daemon's ready line, and tells a service manager that waits for it."""
    tell = say(daemon)

    def say_ready(line: str) -> None:
        tell(f"ready: {line}")
        notify("READY=1")

    return say_ready


def say(daemon: str) -> Callable[[str], None]:
    """Return what prints a line of a running daemon: to all but quiet ones, as a record where the log is JSON."""
    options = OPTIONS.get()
    if options.form is LogFormat.JSON:
        return logging.getLogger(f"millrace.{daemon}").info
    if options.quiet:
        return lambda _: None
    return lambda line: typer.echo(f"millrace {daemon}: {line}", err=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on stderr what is being done and for how long already, for as long as the block takes; quick ones nothing."""
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_PROGRESS_S):
            typer.echo(f"millrace: {what}: {time.monotonic() - began:.0f} s", err=True)

    if OPTIONS.get().quiet:
        yield
        return
    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def check_outputs(picture: Path | None, *others: Path | None) -> None:
    """Raise BadParameter for files that could not be written in the end, before the work is done."""
    if picture is not None and picture.suffix not in {".png", ".svg"}:
        raise typer.BadParameter(f"{picture}: a picture's name ends in .png or .svg")
    for path in (picture, *others):
        if path is not None and not path.parent.is_dir():
            raise typer.BadParameter(f"{path}: {path.parent} is no folder")
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path}: it is a folder")
