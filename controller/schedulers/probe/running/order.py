"""What a runner is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: on how many units of how many cores together, how often, for how long at least, in what time."""

    units: int
    cores: int
    repeat: int
    deadline_s: float
    at_least_s: float
