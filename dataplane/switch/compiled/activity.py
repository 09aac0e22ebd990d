"""Settings and activity counters of a native switch's workers; values only."""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.nic import Mode

DEFAULT_SPIN_US = 20
_ENDLESS_NS = 1 << 62
"""A spin that does not end: about 146 years."""


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Number of workers, and how long each spins at most before it sleeps."""

    threads: int = 1
    spin_us: int = DEFAULT_SPIN_US

    def spin_ns(self, mode: Mode) -> int:
        """Return how long a worker in a mode spins at most."""
        match mode:
            case Mode.WAITING:
                return 0
            case Mode.POLLING:
                return _ENDLESS_NS
            case Mode.HYBRID:
                return 1000 * (self.spin_us or DEFAULT_SPIN_US)


def mode_of(spin_ns: int) -> Mode:
    """Return the mode of a worker that spins this long at most."""
    if spin_ns == 0:
        return Mode.WAITING
    return Mode.POLLING if spin_ns == _ENDLESS_NS else Mode.HYBRID


@dataclass(frozen=True, slots=True)
class Activity:
    """Number of a worker's loop turns, of those without work, and of its sleeps."""

    turns: int
    idle_turns: int
    sleeps: int
