"""Settings of a network in the live scheduler, and of what it learns there."""

from __future__ import annotations

from controller.learning.agent.settings import AgentSettings, NetworkSettings
from controller.learning.environment.rewarding import reward
from controller.learning.environment.settings import Gain, PoolSettings
from controller.learning.errors import LearningError
from controller.scheduling.framework.lessons import Outcome
from dataplane.clock import NS_PER_S
from dataplane.config import Settings


class LearnSettings(Settings, frozen=True):
    """Learning in a live scheduler: settings of a new agent, the save interval, and the reward.

    The reward is `utilisation_weight` times the utilisation plus `latency_unit_ns` over the time from the request to
    the start; with evictions their time is subtracted, down to `eviction_bound` over that time. Another `gain` departs
    and uses the time to the end. Anything not started after `longest_start_s` counts as never started.
    `network_features` and `load_features` select further features for a new agent; by default it has those of the
    network, except with `agent.preset: specification`, which allows neither, nor another `gain`.
    """

    agent: AgentSettings = AgentSettings(network=NetworkSettings(form="tokens"))
    save_every_s: float = 60.0
    longest_start_s: float = 600.0
    utilisation_weight: float = 1.0
    latency_unit_ns: int = 1_000_000_000
    eviction_bound: float = -0.5
    gain: Gain = Gain.SPECIFICATION
    network_features: bool | None = None
    load_features: bool = False

    @property
    def has_network(self) -> bool:
        """True if a new agent observes the network."""
        return self.agent.preset is None if self.network_features is None else self.network_features

    def check(self) -> None:
        """Raise LearningError for an invalid figure."""
        self.agent.check()
        if self.agent.preset is not None:
            for key in ("network_features", "load_features"):
                if getattr(self, key):
                    raise LearningError(f"learn.{key}: the preset {self.agent.preset} has no {key}")
            if self.gain is not Gain.SPECIFICATION:
                raise LearningError(f"learn.gain: the preset {self.agent.preset} has specification, not {self.gain}")
        for key in ("save_every_s", "longest_start_s"):
            if not getattr(self, key) > 0:
                raise LearningError(f"learn.{key}: {getattr(self, key)} is not above 0")
        self.worth()

    def worth(self) -> PoolSettings:
        """Return the settings of the reward; LearningError for invalid figures."""
        return PoolSettings(
            utilisation_weight=self.utilisation_weight,
            latency_unit_ns=self.latency_unit_ns,
            eviction_bound=self.eviction_bound,
            gain=self.gain,
        )

    def reward(self, outcome: Outcome) -> float:
        """Return the reward of a decision by its results."""
        worth, longest_ns = self.worth(), round(self.longest_start_s * NS_PER_S)
        if outcome.latency_ns is None and worth.gain is Gain.SPECIFICATION:
            return worth.utilisation_weight * outcome.utilisation
        return reward(
            worth,
            outcome.utilisation,
            outcome.latency_ns or longest_ns,
            outcome.response_ns or longest_ns,
            eviction_ns=outcome.eviction_ns,
        )


class LiveSettings(Settings, frozen=True):
    """A checkpoint's file, and whether it only watches; the deadline of an answer; who decides without one.

    `fallback` names a score that decides if the network cannot, empty: the profile's other scores do. Its choice also
    stands if the network's best is within the agent's `decisions.margin` above it, and it chooses among candidates
    within `decisions.tolerance` below the best. With `learn` the network learns from the results of decisions, and
    begins anew without a checkpoint.
    """

    checkpoint: str
    shadow: bool = True
    deadline_ns: int = 3_000_000
    fallback: str = ""
    learn: LearnSettings | None = None
