"""The skeleton of every daemon with a settings file: start, ready line, signals, and reload on SIGHUP.

A daemon states its name, the type of its settings, and a coroutine that builds its parts and runs them; what SIGHUP
applies, it states as a `Reload`. Metrics are served by `dataplane.metrics_server`. The switch has no settings file and
no event loop, and stays apart.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from dataplane.config import load
from dataplane.config.changes import not_in_force
from dataplane.daemon.notify import notify
from dataplane.errors import MillraceError
from dataplane.running import ignore_hangup, stop_on_signals

S = TypeVar("S", bound=msgspec.Struct)
Say = Callable[[str], None]
"""Prints one line to the user."""


def ready_line(say: Say) -> Say:
    """Return what tells a daemon's ready line, also to a service manager that waits for it."""

    def ready(line: str) -> None:
        say(f"ready: {line}")
        notify("READY=1")

    return ready


@dataclass(frozen=True, slots=True)
class Reload(Generic[S]):
    """Settings that SIGHUP applies, and the lines about them."""

    apply: Callable[[S], str | Awaitable[str]]
    """Applies new settings and returns the line to log, '' for none; raises MillraceError and changes nothing."""

    unchanged: str
    """Beginning of the line about refused settings."""

    keys: Collection[str] | None = None
    """Keys that take effect at once; a line names the other changed ones. None: all do."""

    say: Say | None = None
    """Receives the lines; default: logs them."""


class Lifecycle(Generic[S]):
    """The outside world of a running daemon: its end, its ready line, and SIGHUP.

    `read` returns the settings as they are in the file; `settings` are those that the daemon started with.
    """

    def __init__(self, name: str, settings: S, read: Callable[[], S], stop: asyncio.Event, say: Say) -> None:
        self.stop, self.ready = stop, ready_line(say)
        self.say = say
        self._settings, self._read = settings, read
        self._log = logging.getLogger(f"millrace.{name}")
        self._hangups: list[Callable[[], object]] = []
        self._reloading: asyncio.Task[None] | None = None

    def on_hangup(self, call: Callable[[], object]) -> None:
        """Call this at each SIGHUP."""
        self._hangups.append(call)

    def reload(self, reload: Reload[S]) -> None:
        """Apply changed settings at each SIGHUP; at most once per lifecycle."""
        again = asyncio.Event()
        self._reloading = asyncio.create_task(self._reload(reload, again), name="reload")
        # A failure, which is a bug, ends the daemon: `close` raises it.
        self._reloading.add_done_callback(lambda _: self.stop.set())
        self.on_hangup(again.set)

    def hang_up(self) -> None:
        """Take SIGHUP, which is ignored with a line in the log if the daemon reloads nothing."""
        for call in self._hangups or (ignore_hangup,):
            call()

    async def close(self) -> None:
        """Stop reloading; raise the error that ended it, if one did."""
        if self._reloading is None:
            return
        self._reloading.cancel()
        await asyncio.wait([self._reloading])
        if not self._reloading.cancelled():
            self._reloading.result()

    async def _reload(self, reload: Reload[S], again: asyncio.Event) -> None:
        told, warned = reload.say or self._log.info, reload.say or self._log.warning
        while True:
            await again.wait()
            again.clear()
            try:
                settings = self._read()
                applied = reload.apply(settings)
                line = await applied if inspect.isawaitable(applied) else applied
            except MillraceError as error:
                warned(f"{reload.unchanged}: {error}")
                continue
            if line:
                told(line)
            if reload.keys is not None and (line := not_in_force(self._settings, settings, reloaded=reload.keys)):
                warned(line)


@dataclass(frozen=True, slots=True)
class Daemon(Generic[S]):
    """A daemon: its name in logs and lines, the type of its settings, and its work."""

    name: str

    schema: type[S]

    serve: Callable[[S, Lifecycle[S]], Awaitable[None]]
    """Builds the parts and runs them until the lifecycle's `stop` is set; raises MillraceError."""

    def load_settings(self, path: Path) -> S:
        """Return a settings file's content; raise ConfigError with file, line and key."""
        return load(path, self.schema)

    def run(self, path: Path, say: Say) -> None:
        """Run with the settings in a file until SIGINT or SIGTERM; raise MillraceError."""
        self.start(self.load_settings(path), path, say)

    def start(self, settings: S, path: Path, say: Say) -> None:
        """Run like `run` with settings that were read from `path`."""
        asyncio.run(self._run(settings, lambda: self.load_settings(path), say))

    async def _run(self, settings: S, read: Callable[[], S], say: Say) -> None:
        lifecycle = Lifecycle(self.name, settings, read, asyncio.Event(), say)
        stop_on_signals(lifecycle.hang_up, lifecycle.stop)
        try:
            await self.serve(settings, lifecycle)
        finally:
            await lifecycle.close()
