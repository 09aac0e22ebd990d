"""Load of a daemon over the last interval, as reported to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class ThreadLoad:
    """Processor time of one thread, as a share of a core."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Items waiting in a queue, its capacity (None: unbounded), and the age of the oldest (ns)."""

    name: str
    length: int
    limit: int | None = None
    oldest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class DropRate:
    """Items dropped for one reason, per second."""

    reason: str
    per_s: float


@dataclass(frozen=True, slots=True)
class Overload:
    """A cause of overload, its remedy, and its duration so far (ns)."""

    cause: str
    advice: str
    for_ns: int = 0
    name: str = ""
    """Name of the cause, without figures."""

    def __str__(self) -> str:
        return f"overloaded for {self.for_ns / NS_PER_S:.0f} s: {self.cause}; {self.advice}"


@dataclass(frozen=True, slots=True)
class DaemonLoad:
    """Load of a daemon over the last interval.

    `cores` is the processor time of the process in cores; `waiting` the share of time that its main thread was ready to
    run and had no processor; `loop_lag_ns` the longest delay of a timer by the event loop.
    """

    cores: float = 0.0
    waiting: float = 0.0
    loop_lag_ns: int = 0
    threads: tuple[ThreadLoad, ...] = ()
    queues: tuple[QueueLoad, ...] = ()
    drops: tuple[DropRate, ...] = ()
    overloads: tuple[Overload, ...] = ()


NO_LOAD: Final = DaemonLoad()
"""Load of a daemon that has not measured any yet."""
