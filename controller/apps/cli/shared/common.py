"""Shared parts of the daemons' commands: the settings option, the ready line, the log."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

import typer

from controller.apps.cli.shared.log import log_to_stderr
from controller.apps.cli.shared.log_options import OPTIONS, LogFormat

if TYPE_CHECKING:
    from dataplane.daemon import Daemon

__all__ = ["SettingsFile", "check_outputs", "log_to_stderr", "ready", "run_daemon", "say", "slow", "working"]

P = ParamSpec("P")
T = TypeVar("T")

_PROGRESS_S: Final = 3.0
"""Interval between progress messages of a long-running command."""

SettingsFile = Annotated[
    Path, typer.Option("--settings", "-s", metavar="FILE", help="TOML or YAML; unknown keys are errors.")
]


def run_daemon(daemon: Daemon[Any], settings: Path) -> None:
    """Run a daemon with a settings file until it is stopped; its log and its lines go to stderr."""
    log_to_stderr(daemon.name)
    daemon.run(settings, say(daemon.name))


def ready(daemon: str) -> Callable[[str], None]:
    """Return a function that prints a command's ready line, and notifies a waiting service manager."""
    from dataplane.daemon import ready_line  # noqa: PLC0415 - loads settings

    return ready_line(say(daemon))


def say(daemon: str) -> Callable[[str], None]:
    """Return a function that prints a running daemon's line, unless quiet; as a record if the log is JSON."""
    options = OPTIONS.get()
    if options.form is LogFormat.JSON:
        return logging.getLogger(f"millrace.{daemon}").info
    if options.quiet:
        return lambda _: None
    return lambda line: typer.echo(f"millrace {daemon}: {line}", err=True)


@contextmanager
def working(what: str | Callable[[], str]) -> Iterator[None]:
    """Print progress and elapsed time to stderr every few seconds while the block runs; nothing for a quick one.

    A function returns the progress at that time, on another thread.
    """
    done, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(_PROGRESS_S):
            doing = what if isinstance(what, str) else what()
            typer.echo(f"millrace: {doing}: {time.monotonic() - began:.0f} s", err=True)

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


def slow(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for commands that may take long before they print: meanwhile a terminal shows progress."""

    def decorate(command: Callable[P, T]) -> Callable[P, T]:
        @wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> T:
            with working(what) if sys.stderr.isatty() else nullcontext():
                return command(*args, **options)

        return run

    return decorate


def check_outputs(picture: Path | None, *others: Path | None) -> None:
    """Raise BadParameter, before the work begins, for files that could not be written at its end."""
    if picture is not None and picture.suffix not in {".png", ".svg"}:
        raise typer.BadParameter(f"{picture}: a picture's name ends in .png or .svg")
    for path in (picture, *others):
        if path is not None and not path.parent.is_dir():
            raise typer.BadParameter(f"{path}: {path.parent} is not a folder")
        if path is not None and path.is_dir():
            raise typer.BadParameter(f"{path}: is a folder")
