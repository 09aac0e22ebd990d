"""Settings of the environment: where data is at first, what is seen, and what is rewarded."""

from __future__ import annotations

from enum import StrEnum

from controller.schedulers.learning.errors import LearningError
from dataplane.config import Strict


class Placing(StrEnum):
    """Which of the pool's memories is home of which object."""

    STRIPED = "striped"
    """One memory after another in turn, the objects in their order."""
    SCATTERED = "scattered"
    """The same, the objects in an order that the seed draws."""
    PACKED = "packed"
    """The first memory until it is full, then the next."""


class PoolSettings(Strict, frozen=True):
    """How the pool is used, seen and rewarded; the reward is `rewarding.reward`.

    `utilisation_weight` is the specification's lambda, `eviction_bound` its beta, from -1 to 0. Latencies of the reward
    count in `latency_unit_ns`. `network_features` switches the network's delay and bandwidth in what is seen on or off.
    `page_bytes` is the unit of a request's size.
    """

    placing: Placing = Placing.SCATTERED
    network_features: bool = True
    page_bytes: int = 4096
    utilisation_weight: float = 1.0
    eviction_bound: float = -0.5
    latency_unit_ns: int = 100_000

    def __post_init__(self) -> None:
        if not -1 <= self.eviction_bound <= 0:
            raise LearningError(f"eviction_bound is {self.eviction_bound}, not from -1 to 0", at="eviction_bound")
        if not 0 <= self.utilisation_weight < float("inf"):
            raise LearningError(f"utilisation_weight cannot be {self.utilisation_weight}", at="utilisation_weight")
        for name in ("latency_unit_ns", "page_bytes"):
            if getattr(self, name) < 1:
                raise LearningError(f"{name} is {getattr(self, name)}, less than 1", at=name)
