"""Deadlines for local programs and services that a busy machine does not exhaust.

Such a deadline exists to detect hangs. A program that merely shares the CPUs with many others is slow, and its result
is worth waiting for. So time is weighted by the share of a CPU that each runnable thread gets: with ten of them on two
CPUs, five seconds count as one. Time in which this process itself stood still (stopped, suspended, a blocked event
loop) hardly counts. No deadline is stretched beyond ten times its length.

Peers across a network have plain deadlines: their slowness is unrelated to the load of this machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Final

LOGGER: Final = logging.getLogger("millrace.deadline")

MOST_TIMES: Final = 10
"""Maximum stretch of a deadline, as a multiple of its length."""
_STEPS: Final = 20
_LONGEST_STEP_S: Final = 0.5
_LOADAVG: Final = Path("/proc/loadavg")


def runnable_threads() -> int:
    """Return the number of runnable threads on this machine at the moment; 1 if unknown."""
    try:
        # "0.20 0.18 0.12 1/80 11206": the fourth field has runnable and total threads (proc(5)).
        return max(1, int(_LOADAVG.read_text().split()[3].partition("/")[0]))
    except (OSError, ValueError, IndexError):
        return 1


class LocalDeadline:
    """A time limit for a local event; poll it regularly, as it counts the time between polls.

    `doing` begins the line that is logged once, after `limit_s`, about waiting for a busy machine.
    """

    def __init__(
        self,
        limit_s: float,
        doing: str,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        runnable: Callable[[], int] = runnable_threads,
        cpus: int | None = None,
    ) -> None:
        self.limit_s, self._doing = limit_s, doing
        self._monotonic, self._runnable, self._cpus = monotonic, runnable, cpus or os.cpu_count() or 1
        self.step_s = min(limit_s / _STEPS, _LONGEST_STEP_S)
        """Maximum polling interval: a longer one counts as a stall of this process."""
        self._began_s = self._seen_s = monotonic()
        self._left_s, self._has_said = limit_s, False

    def has_passed(self) -> bool:
        """Count the time since the last poll, if it is long enough, and return whether the limit has passed."""
        now_s = self._monotonic()
        if now_s - self._seen_s < self.step_s:
            return False
        wanted = self._runnable()
        # Twice the step: timers fire slightly late on any machine.
        elapsed_s = min(now_s - self._seen_s, 2 * self.step_s)
        self._left_s -= elapsed_s * min(1.0, self._cpus / wanted)
        self._seen_s = now_s
        waited_s = now_s - self._began_s
        if self._left_s <= 0 or waited_s >= MOST_TIMES * self.limit_s:
            return True
        if waited_s >= self.limit_s and not self._has_said:
            self._has_said = True
            LOGGER.warning(
                "%s: no answer yet after %g s on a busy machine (%d threads want %d CPUs): waiting for up to %g s",
                *(self._doing, self.limit_s, wanted, self._cpus, MOST_TIMES * self.limit_s),
            )
        return False


@asynccontextmanager
async def local_timeout(limit_s: float, doing: str) -> AsyncIterator[None]:
    """Limit the block like `asyncio.timeout`, by a LocalDeadline; raise TimeoutError when it has passed."""
    loop, deadline = asyncio.get_running_loop(), LocalDeadline(limit_s, doing)
    timeout = asyncio.timeout(None)
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        if deadline.has_passed():
            timeout.reschedule(loop.time())
        else:
            timer = loop.call_later(deadline.step_s, look)

    async with timeout:
        timer = loop.call_later(deadline.step_s, look)
        try:
            yield
        finally:
            timer.cancel()


def wait_for_exit(process: subprocess.Popen[Any], limit_s: float, doing: str) -> bool:
    """Wait for a process to end, at most for a LocalDeadline; return whether it has."""
    deadline = LocalDeadline(limit_s, doing)
    while True:
        try:
            process.wait(deadline.step_s)
        except subprocess.TimeoutExpired:
            if deadline.has_passed():
                return False
        else:
            return True


def wait_readable(file: IO[Any], deadline: LocalDeadline) -> bool:
    """Wait until a process's pipe is readable or at its end; return whether it is before the deadline."""
    while not select.select([file], [], [], deadline.step_s)[0]:
        if deadline.has_passed():
            return False
    return True
