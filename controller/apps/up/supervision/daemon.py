"""One daemon under the supervisor: started, watched, restarted, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from controller.apps.up.errors import UpError
from controller.apps.up.settings import RestartSettings
from controller.apps.up.supervision.incidents import Incidents
from controller.apps.up.supervision.lines import DaemonLog, LineSplitter
from controller.apps.up.values import Incident, State
from dataplane.local.deadline import local_timeout
from dataplane.local.endings import how_ended, why_ended

READY: Final = ": ready: "
_CHUNK_BYTES: Final = 1 << 16
_LAST_WORDS_S: Final = 0.5
_LAST_LINES: Final = 50
_MODULE: Final = "controller.apps.cli.child"
_TRIES: Final = 3
"""Number of ends after a requested restart after which nobody waits for it any longer."""
BY_REQUEST: Final = "restarted by request"


class Daemon:
    """A process kept running until `stop`; `run` supervises it. One event loop, no threads."""

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        log: DaemonLog,
        settings: RestartSettings,
        *,
        on_change: Callable[[], None],
        up_log: DaemonLog | None = None,
        on_start: Callable[[], None] = lambda: None,
        environ: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run `millrace ARGUMENTS` with `environ` added to our own; call `on_change` with each new state.

        `up_log`, the supervisor's, gets a line about each end and each time that it is ready. `on_start` is called
        before each process.
        """
        self.name, self.restarts = name, 0
        self.state = State.STOPPED
        self.has_been_ready = False
        self.early_ends = 0
        """Number of exits before it was first ready."""
        self._arguments, self._log, self._settings = tuple(arguments), log, settings
        self._on_change, self._on_start, self._now_s = on_change, on_start, now_s
        self._up_log = up_log
        self._environ = dict(environ or {})
        self.ready_line: str | None = None
        """Last ready line."""
        self._process: asyncio.subprocess.Process | None = None
        self._last_lines = deque[str](maxlen=_LAST_LINES)
        self._since_s = self._started_s = now_s()
        self._incidents = Incidents(now_s)
        self._starts = self._ends = 0
        self._restart_is_asked = self._hangup_is_due = False
        self._stopping, self._interrupt, self._changed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The current process, if any."""
        return None if self._process is None else self._process.pid

    @property
    def since_s(self) -> float:
        """Time since the last state change."""
        return self._now_s() - self._since_s

    @property
    def incidents(self) -> tuple[Incident, ...]:
        """Ends of the last hour, the oldest first."""
        return self._incidents.recent()

    @property
    def last_error(self) -> str | None:
        """Reason of its last death in the last hour."""
        return next((incident.how for incident in reversed(self.incidents) if not incident.by_request), None)

    async def run(self) -> None:
        """Keep it running until `stop`."""
        wait_s = self._settings.first_wait_s
        while not self._stopping.is_set():
            self._started_s = self._now_s()
            status = await self._run_once()
            if self._stopping.is_set():
                break
            self.restarts, self._ends = self.restarts + 1, self._ends + 1
            if self._restart_is_asked:
                self._note_request()
                wait_s = self._settings.first_wait_s
                continue
            wait_s = wait_after(self._now_s() - self._started_s, wait_s, self._settings)
            self._note_end(status, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._interrupt.wait()
            wait_s = min(2 * wait_s, self._settings.longest_wait_s)
        self._set(State.STOPPED)

    async def stop(self) -> None:
        """Ask it to end, kill it after `stop_s`; return when it is gone."""
        self._stopping.set()
        self._interrupt.set()
        await self._end_process()

    async def wait_stopping(self) -> None:
        """Return when `stop` is called."""
        await self._stopping.wait()

    async def restart(self) -> None:
        """End the process, as `stop` does, and start another at once; return when the first one is gone."""
        self._restart_is_asked = self._process is not None
        self._interrupt.set()
        await self._end_process()

    async def restarted(self) -> float:
        """Restart it, and return the seconds until it was ready again; raise UpError if it does not get there."""
        began_s, starts, ends = self._now_s(), self._starts, self._ends
        own_end = self._process is not None
        await self.restart()
        while not (self._starts > starts and self.state is State.READY):
            if self._stopping.is_set():
                raise UpError(f"the {self.name} is being stopped")
            if self._ends - own_end - ends >= _TRIES:
                raise UpError(f"the {self.name} does not get ready again: {self.last_error}")
            self._changed.clear()
            await self._changed.wait()
        return self._now_s() - began_s

    def hang_up(self) -> None:
        """Send SIGHUP, to a starting process when it is ready: until then the signal would end it."""
        if self.state is State.READY:
            self.signal(signal.SIGHUP)
        else:
            self._hangup_is_due = True

    async def _end_process(self) -> None:
        process = self._process
        if process is None:
            return
        self.signal(signal.SIGTERM)
        try:
            async with local_timeout(self._settings.stop_s, f"the end of {self.name}"):
                await process.wait()
        except TimeoutError:
            self._log.write(f"did not stop within {self._settings.stop_s:g} s: killed")
            self.signal(signal.SIGKILL)
            await process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if any."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _run_once(self) -> int:
        """Start the process and read its lines until it ends; return its status."""
        self._last_lines.clear()
        self._hangup_is_due = False  # what starts now reads the newest settings
        if not self._stopping.is_set():
            self._interrupt.clear()
        self._on_start()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            str(os.getpid()),
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=environment(os.environ) | self._environ,
            start_new_session=True,  # a terminal's Ctrl-C is the supervisor's: it stops daemons in order
        )
        self._starts += 1
        self._set(State.STARTING)
        if self._stopping.is_set():  # `stop` was called before there was a process
            self.signal(signal.SIGTERM)
        assert process.stdout is not None
        reading = asyncio.create_task(self._read(process.stdout))
        status = await process.wait()
        # Its last output is still in the pipe, which processes that inherited it may keep open.
        await asyncio.wait((reading,), timeout=_LAST_WORDS_S)
        reading.cancel()
        self._process = None
        return status

    async def _read(self, stream: asyncio.StreamReader) -> None:
        splitter = LineSplitter()
        while data := await stream.read(_CHUNK_BYTES):
            self._take(splitter.feed(data))
        self._take(splitter.end())

    def _take(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._last_lines.append(line)
            self._log.write(line)
            if READY in line and self.state is State.STARTING:
                took = f"{self._now_s() - self._started_s:.1f} s (process {self.pid})"
                # On the terminal is the daemon's own ready line.
                self._note(f"ready {'again ' if self._ends else ''}after {took}", only_file=True)
                self.has_been_ready, self.ready_line = True, line
                self._incidents.note_ready()
                self._set(State.READY)
                if self._hangup_is_due:
                    self.hang_up()

    def _note_end(self, status: int, wait_s: float) -> None:
        self._incidents.note(why_ended(status, tuple(self._last_lines)))
        self.early_ends += not self.has_been_ready
        # The supervisor's line about it is on the terminal.
        self._log.write(f"{how_ended(status)}; restart {self.restarts} in {wait_s:.1f} s", only_file=True)
        lived_s = self._now_s() - self._started_s
        self._note(f"{self.last_error}, after {lived_s:.1f} s; restart {self.restarts} in {wait_s:.1f} s")
        self._set(State.WAITING)

    def _note_request(self) -> None:
        self._restart_is_asked = False
        self._incidents.note(BY_REQUEST, by_request=True)
        self._log.write(BY_REQUEST, only_file=True)
        self._note(BY_REQUEST)
        # Not ready, or whoever waits for the next process would take it for that one.
        self._set(State.WAITING)

    def _note(self, line: str, *, only_file: bool = False) -> None:
        if self._up_log is not None:
            self._up_log.write(f"{self.name}: {line}", only_file=only_file)

    def _set(self, state: State) -> None:
        self.state, self._since_s = state, self._now_s()
        self._changed.set()
        self._on_change()


def wait_after(lived_s: float, wait_s: float, settings: RestartSettings) -> float:
    """Return the wait before a restart; a long run resets it."""
    return settings.first_wait_s if lived_s >= settings.young_s else wait_s


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a daemon's environment: unbuffered output, and none of the supervisor's service manager variables."""
    ours = {key: value for key, value in environ.items() if key != "NOTIFY_SOCKET"}
    return ours | {"PYTHONUNBUFFERED": "1", "MILLRACE_LOG_FORMAT": "plain"}
