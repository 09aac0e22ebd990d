"""Deadlines for programs and services of this machine, which a busy machine does not use up.

Such a deadline is there to notice what hangs. A program that merely shares the CPUs with many others is slow, and what
it was asked for is worth waiting for. So time counts by the share of a CPU that each runnable thread gets: with ten of
them on two CPUs, five seconds count as one. Time in which this process itself stood still (stopped, suspended, an event
loop that was blocked) hardly counts. No deadline is stretched beyond ten times its length.

Peers across a network have plain deadlines: their slowness has nothing to do with the load of this machine.
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
"""How many times its length a deadline takes at most."""
_STEPS: Final = 20
_LONGEST_STEP_S: Final = 0.5
_LOADAVG: Final = Path("/proc/loadavg")


def runnable_threads() -> int:
    """Return how many threads of this machine run or could run at this moment; 1 where it does not say."""
    try:
        # "0.20 0.18 0.12 1/80 11206": the fourth word has those that can run, and all (proc(5)).
        return max(1, int(_LOADAVG.read_text().split()[3].partition("/")[0]))
    except (OSError, ValueError, IndexError):
        return 1


class LocalDeadline:
    """A time limit for something of this machine to happen; asked again and again, as it counts between two questions.

    `doing` begins the line that says once, after `limit_s`, that a busy machine is waited for.
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
        """How often to ask at least: a longer time between two questions counts as our own standstill."""
        self._began_s = self._seen_s = monotonic()
        self._left_s, self._has_said = limit_s, False

    def has_passed(self) -> bool:
        """Count the time since the last question, once it is worth it, and return whether the limit has passed."""
        now_s = self._monotonic()
        if now_s - self._seen_s < self.step_s:
            return False
        wanted = self._runnable()
        # Twice the step: a timer fires a little late on any machine.
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
    """Limit the block as `asyncio.timeout` does, by a LocalDeadline; raise TimeoutError when it has passed."""
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
    """Wait until a process has ended, at most for a LocalDeadline; return whether it has."""
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
    """Wait until a pipe of a process has something to read, or its end; return whether it has before the deadline."""
    while not select.select([file], [], [], deadline.step_s)[0]:
        if deadline.has_passed():
            return False
    return True


def wait_until(condition: Callable[[], bool], limit_s: float, doing: str, *, poll_s: float) -> bool:
    """Wait until a condition holds, at most for a LocalDeadline; return whether it does."""
    deadline = LocalDeadline(limit_s, doing)
    while not condition():
        if deadline.has_passed():
            return condition()
        time.sleep(min(poll_s, deadline.step_s))
    return True
