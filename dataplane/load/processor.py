"""Processor time of this process and its threads, and how long its main thread waited for a processor."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

_SCHEDULING: Final = Path("/proc/self/schedstat")
"""Linux: time on a processor, time ready without one (both ns, of the main thread), and time slices."""

_AS_SCHEDULED, _OF_A_THREAD = 2, 4


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Processor time so far, in ns: of the process, of each thread, and the main thread's time without a CPU."""

    process_ns: int
    waited_ns: int = 0
    threads_ns: Mapping[str, int] = field(default_factory=dict)


class ReadTimes(Protocol):
    """A source of processor times."""

    def __call__(self) -> ProcessorTimes:
        """Return the times so far."""
        ...


def processor_times() -> ProcessorTimes:
    """Return the times of this process; no waiting time if the kernel does not report it."""
    threads: dict[str, int] = {}
    for thread in threading.enumerate():
        if thread.native_id is None:
            continue
        try:
            spent_ns = time.clock_gettime_ns(_clock_of(thread.native_id))
        except OSError:  # the thread has ended since it was listed, or this is not Linux
            continue
        threads[thread.name] = threads.get(thread.name, 0) + spent_ns
    return ProcessorTimes(time.process_time_ns(), _waited_ns(), threads)


def _clock_of(thread: int) -> int:
    """Return the clock of a thread's processor time, by the thread's kernel ID.

    pthread_getcpuclockid reads the memory of the thread, which may have ended: that would crash the process. Source:
    Linux, include/linux/posix-timers.h, make_thread_cpuclock.
    """
    return ~thread << 3 | _OF_A_THREAD | _AS_SCHEDULED


def _waited_ns() -> int:
    try:
        return int(_SCHEDULING.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):  # a kernel without scheduler statistics, or not Linux
        return 0
