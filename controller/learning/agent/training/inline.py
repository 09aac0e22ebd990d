"""Training inline with decisions: the decider waits, and everything is deterministic. For virtual time."""

from __future__ import annotations

from controller.learning.agent.learner import Learner
from controller.learning.agent.records import LearnerRecord
from controller.learning.agent.resuming import learner_record
from controller.learning.agent.training.base import Prepare, Published, Status
from controller.learning.agent.weights import WeightSet
from controller.learning.values import Experience


class InlineTraining:
    """Trains within `give`."""

    def __init__(self, learner: Learner, prepare: Prepare) -> None:
        self._learner = learner
        self._prepare = prepare
        self._published = Published(learner.published, prepare(learner.published))

    @property
    def published(self) -> Published:
        """The newest weights."""
        return self._published

    @property
    def status(self) -> Status:
        """Status of training."""
        return status_of(self._learner)

    def give(self, experience: Experience) -> None:
        """Learn from an experience."""
        weights = self._learner.take(experience)
        if weights is not None:
            self._published = Published(weights, self._prepare(weights))

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:  # noqa: ARG002 - nothing waits
        """Return the published weights and the learner's state."""
        return self._learner.published, learner_record(self._learner)

    def close(self) -> None:
        """Do nothing: nothing runs."""


def status_of(learner: Learner, *, dropped: int = 0, problem: str = "") -> Status:
    """Return a learner's status."""
    progress = learner.progress
    return Status(
        learner.decisions,
        learner.steps,
        progress.loss if progress else 0.0,
        progress.error if progress else 0.0,
        dropped,
        learner.refused,
        learner.buffer.duplicates,
        problem=problem,
    )
