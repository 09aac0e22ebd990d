"""Settings and activity counters of a native switch's workers; values only."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SPIN_US = 20


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Number of workers, and how long each spins at most before it sleeps."""

    threads: int = 1
    spin_us: int = DEFAULT_SPIN_US


@dataclass(frozen=True, slots=True)
class Activity:
    """Number of a worker's loop turns and sleeps."""

    turns: int
    sleeps: int
