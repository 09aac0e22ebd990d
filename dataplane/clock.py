"""Clocks: code receives the time as an argument and never reads it on the side."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Protocol

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000


def boot_time_ns() -> int:
    """Return a monotonic time that also counts while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock(Protocol):
    """A source of the time."""

    def now_ns(self) -> int:
        """Return nanoseconds since the clock's epoch; never decreases."""
        ...


@dataclass(slots=True)
class VirtualClock:
    """A clock that stands still until it is advanced (simulation, tests)."""

    time_ns: int = 0

    def now_ns(self) -> int:
        """Return the time that was set last."""
        return self.time_ns

    def advance_to(self, time_ns: int) -> None:
        """Move to `time_ns`; raise ValueError if that is in the past."""
        if time_ns < self.time_ns:
            raise ValueError(f"a clock cannot go back from {self.time_ns} ns to {time_ns} ns")
        self.time_ns = time_ns


@dataclass(frozen=True, slots=True)
class MonotonicClock:
    """The machine's monotonic clock, shared by every process and network namespace of one machine."""

    def now_ns(self) -> int:
        """Return nanoseconds since boot."""
        return time.monotonic_ns()


@dataclass(frozen=True, slots=True)
class UtcClock:
    """UTC: the machine's at the moment of construction, continued by its monotonic clock.

    Later changes of the machine's time do not affect it, so decisions can rely on it.
    """

    epoch_ns: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())
    """Offset of UTC from the monotonic clock."""

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return self.epoch_ns + time.monotonic_ns()
