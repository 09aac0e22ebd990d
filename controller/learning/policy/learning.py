"""Common part of the `learned` policies of pods and tasks: a network, and its training."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.learning.agent.purpose import Kind, MadeFor
from controller.learning.environment.settings import Gain
from controller.learning.policy.live import LiveNetwork
from controller.learning.policy.settings import LearnSettings, LiveSettings
from controller.learning.values import Observation
from controller.scheduling.framework.lessons import Outcome, Standing


class LearningPolicy:
    """A policy with a network. It is told of decisions once they stand, and of their results.

    Before it is opened it learns nothing, and decides by its checkpoint.
    """

    Settings = LiveSettings

    def __init__(
        self,
        settings: LiveSettings,
        kind: Kind,
        example: Callable[[MadeFor], Observation],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.settings = settings
        self.network = LiveNetwork(settings, kind, example, clock_ns)

    @property
    def is_learning(self) -> bool:
        """True if the policy wants to hear about the results of decisions."""
        return self.settings.learn is not None

    @property
    def save_every_s(self) -> float:
        """Interval between saves."""
        return self._learn.save_every_s

    @property
    def longest_start_s(self) -> float:
        """Time after which anything not started counts as never started."""
        return self._learn.longest_start_s

    @property
    def awaits_end(self) -> bool:
        """True if the reward is known only at the end."""
        return self._learn.gain is not Gain.SPECIFICATION

    @property
    def standing(self) -> Standing:
        """Status of the policy."""
        return self.network.standing

    def open(self) -> None:
        """Begin to learn; raise LearningError on failure."""
        self.network.open()

    def came(self, key: str, outcome: Outcome | None) -> None:
        """Take the result of a decision."""
        self.network.came(key, outcome)

    def save(self) -> None:
        """Write the checkpoint; raise LearningError on failure."""
        self.network.save()

    def close(self) -> None:
        """Save, and end learning."""
        self.network.close()

    @property
    def _learn(self) -> LearnSettings:
        return self.settings.learn or LearnSettings()
