"""Load of a daemon over the last interval, as it reports it to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ThreadLoad:
    """Processor time of one thread, as a share of a core."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class QueueLoad:
    """Items that wait in a queue, how many it holds (None: unbounded), and how long the oldest has waited (ns)."""

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
    """A cause of overload, what helps, and for how long it has lasted (ns)."""

    cause: str
    advice: str
    for_ns: int = 0
    name: str = ""
    """Of the cause, without figures."""

    def __str__(self) -> str:
        return f"overloaded for {self.for_ns / 1e9:.0f} s: {self.cause}; {self.advice}"


@dataclass(frozen=True, slots=True)
class DaemonLoad:
    """Load of a daemon over the last interval.

    `cores` is the processor time of the process in cores; `waiting` the share of time that its main thread was ready to
    run and had no processor; `loop_lag_ns` the longest that the event loop kept a timer waiting.
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
