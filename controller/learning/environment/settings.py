"""Settings of the environment: initial placement of data, observations, and rewards."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from controller.learning.errors import LearningError
from controller.learning.values import one_of
from dataplane.config import Settings
from dataplane.config.quantities import key_of


class Placing(StrEnum):
    """Assignment of objects to the pool's memories as their home."""

    STRIPED = "striped"
    """One memory after another in turn, objects in their order."""
    SCATTERED = "scattered"
    """The same, objects in an order drawn by the seed."""
    PACKED = "packed"
    """The first memory until it is full, then the next."""


class Gain(StrEnum):
    """Reward function."""

    SPECIFICATION = "specification"
    """lambda U + 1 / L, less evictions: the specification's."""
    RESPONSE = "response"
    """A departure: minus the response time, which adds up to the criterion of mean response."""
    LOG_RESPONSE = "log-response"
    """A departure: minus log2(1 + response time), which keeps short ones distinguishable next to long ones."""


class PoolSettings(Settings, frozen=True):
    """Use, observation and reward of the pool; the reward is `rewarding.reward`.

    `utilisation_weight` is the specification's lambda, `eviction_bound` its beta, from -1 to 0. Latencies of the reward
    and responses of `gain` count in `latency_unit_ns`. `network_features` switches the network's delay and bandwidth in
    the observation on or off. `load_features` switches on seven more features per action, a departure: tasks `queued`
    over slots; how long the task would `wait` for a slot and `compute`, on the engine on which it would end first; how
    long the node's ports are occupied for `arriving` and `leaving` data; when the task's missing data would be there,
    `fetching`; and how much data must make room for it, `evicting`. With `port_hz` above 0, responses of `gain` include
    the wait that a decision's transfers cause for others, at this arrival rate per port; with `slot_hz` above 0 the
    wait caused by its hold on a slot, at this arrival rate per slot. `foretold` adds, after the load's features and
    only with them and the network's, the predicted cost of the task by these prices, before evictions. `page_bytes` is
    the unit of a request's size. With `await_arrival`, a task that needs data in transit waits for it, or reads it from
    its source; without, data is at its new place from the decision that moves it.
    """

    placing: Placing = Placing.SCATTERED
    network_features: bool = True
    load_features: bool = False
    page_bytes: int = 4096
    utilisation_weight: float = 1.0
    eviction_bound: float = -0.5
    latency_unit_ns: int = 100_000
    gain: Gain = Gain.SPECIFICATION
    port_hz: float = 0.0
    slot_hz: float = 0.0
    foretold: bool = False
    await_arrival: bool = False

    def __post_init__(self) -> None:
        # A plain string stands for the choice that it names, as in a file.
        msgspec.structs.force_setattr(self, "placing", one_of(Placing, self.placing, "placing"))
        msgspec.structs.force_setattr(self, "gain", one_of(Gain, self.gain, "gain"))
        if not -1 <= self.eviction_bound <= 0:
            raise LearningError(f"eviction_bound is {self.eviction_bound}, not between -1 and 0", at="eviction_bound")
        if not 0 <= self.utilisation_weight < float("inf"):
            raise LearningError(f"utilisation_weight cannot be {self.utilisation_weight}", at="utilisation_weight")
        for name in ("port_hz", "slot_hz"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise LearningError(f"{name} cannot be {getattr(self, name)}", at=name)
        if self.foretold and not (self.load_features and self.network_features):
            raise LearningError("foretold needs load_features and network_features", at="foretold")
        for name in ("latency_unit_ns", "page_bytes"):
            if getattr(self, name) < 1:
                key = key_of(name) or name
                raise LearningError(f"{key} is {getattr(self, name)}, less than 1", at=key)
