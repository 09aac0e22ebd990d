"""Exponential backoff, up to a bound."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_ns` to `longest_ns`, each shortened at random by up to a half."""

    first_ns: int
    longest_ns: int
    rng: random.Random
    _next_ns: int = field(init=False, default=0)

    def reset(self) -> None:
        """Start over with the first wait, after a success."""
        self._next_ns = 0

    def next_s(self) -> float:
        """Return the next wait in seconds."""
        self._next_ns = min(max(2 * self._next_ns, self.first_ns), self.longest_ns)
        # Jitter, so that a fabric's sessions do not all come back at the same instant.
        return self._next_ns * self.rng.uniform(0.5, 1.0) / 1e9
