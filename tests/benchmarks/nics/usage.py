"""Cost of this process's threads: CPU time from their own clocks, and the number of sleeps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

RECEIVER_CPU = 1 if (os.cpu_count() or 1) > 1 else 0
_TASKS = Path("/proc/self/task")
_SLEEPS = "voluntary_ctxt_switches:"
_THREAD_CLOCK = 6
"""CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED of linux/posix-timers.h: with ~tid above it, a thread's CPU clock."""


@dataclass(frozen=True, slots=True)
class Usage:
    """User and system time together, and voluntary context switches: what getrusage(2) calls ru_nvcsw."""

    cpu_s: float
    sleeps: int

    def since(self, before: Usage) -> Usage:
        """Return the usage since `before`."""
        return Usage(self.cpu_s - before.cpu_s, self.sleeps - before.sleeps)


def thread_ids() -> frozenset[int]:
    """Return the kernel's ids of this process's threads."""
    return frozenset(int(task.name) for task in _TASKS.iterdir())


def read_usage(threads: Iterable[int]) -> Usage:
    """Return what these threads, which must all be alive, used since they began."""
    cpu_s, sleeps = 0.0, 0
    for thread in threads:
        cpu_s += time.clock_gettime((~thread << 3) | _THREAD_CLOCK)
        for line in (_TASKS / str(thread) / "status").read_text().splitlines():
            if line.startswith(_SLEEPS):
                sleeps += int(line.removeprefix(_SLEEPS))
    return Usage(cpu_s, sleeps)


def pin(threads: Iterable[int]) -> None:
    """Put threads onto the receiver's processor, away from the generator's where there are two."""
    for thread in threads:
        os.sched_setaffinity(thread, {RECEIVER_CPU})
