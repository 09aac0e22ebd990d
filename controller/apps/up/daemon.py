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

from controller.apps.up.lines import DaemonLog, LineSplitter
from controller.apps.up.settings import RestartSettings
from controller.apps.up.values import State
from dataplane.local.deadline import local_timeout
from dataplane.local.endings import how_ended, why_ended

READY: Final = ": ready: "
_CHUNK_BYTES: Final = 1 << 16
_LAST_WORDS_S: Final = 0.5
_LAST_LINES: Final = 50
_MODULE: Final = "controller.apps.cli.child"


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
        environ: Mapping[str, str] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Run `millrace ARGUMENTS` with `environ` added to our own; call `on_change` with each new state."""
        self.name, self.restarts = name, 0
        self.state, self.last_error = State.STOPPED, None
        self.has_been_ready = False
        self.early_ends = 0
        """Number of exits before it was first ready."""
        self._arguments, self._log, self._settings = tuple(arguments), log, settings
        self._on_change, self._now_s = on_change, now_s
        self._environ = dict(environ or {})
        self.ready_line: str | None = None
        """Last ready line."""
        self._process: asyncio.subprocess.Process | None = None
        self._last_lines = deque[str](maxlen=_LAST_LINES)
        self._since_s = now_s()
        self._stopping = asyncio.Event()

    last_error: str | None

    @property
    def pid(self) -> int | None:
        """The current process, if any."""
        return None if self._process is None else self._process.pid

    @property
    def since_s(self) -> float:
        """Time since the last state change."""
        return self._now_s() - self._since_s

    async def run(self) -> None:
        """Keep it running until `stop`."""
        wait_s = self._settings.first_wait_s
        while not self._stopping.is_set():
            started_s = self._now_s()
            status = await self._run_once()
            if self._stopping.is_set():
                break
            wait_s = wait_after(self._now_s() - started_s, wait_s, self._settings)
            self._note_end(status, wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._stopping.wait()
            wait_s = min(2 * wait_s, self._settings.longest_wait_s)
        self._set(State.STOPPED)

    async def stop(self) -> None:
        """Ask it to end, kill it after `stop_s`; return when it is gone."""
        self._stopping.set()
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
                self.has_been_ready, self.ready_line = True, line
                self._set(State.READY)

    def _note_end(self, status: int, wait_s: float) -> None:
        self.last_error = why_ended(status, tuple(self._last_lines))
        self.restarts += 1
        self.early_ends += not self.has_been_ready
        self._log.write(f"{how_ended(status)}; restart {self.restarts} in {wait_s:.1f} s")
        self._set(State.WAITING)

    def _set(self, state: State) -> None:
        self.state, self._since_s = state, self._now_s()
        self._on_change()


def wait_after(lived_s: float, wait_s: float, settings: RestartSettings) -> float:
    """Return the wait before a restart; a long run resets it."""
    return settings.first_wait_s if lived_s >= settings.young_s else wait_s


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a daemon's environment: unbuffered output, and none of the supervisor's service manager variables."""
    ours = {key: value for key, value in environ.items() if key != "NOTIFY_SOCKET"}
    return ours | {"PYTHONUNBUFFERED": "1", "MILLRACE_LOG_FORMAT": "plain"}
