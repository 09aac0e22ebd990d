"""How the workers of a native switch go about their work, and how much of it they did; values only."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_SPIN_US = 20


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How the workers go about it: how many there are, and how long at most each spins before it sleeps."""

    threads: int = 1
    spin_us: int = DEFAULT_SPIN_US


@dataclass(frozen=True, slots=True)
class Activity:
    """How often a worker went round its loop, and how often it slept."""

    turns: int
    sleeps: int
