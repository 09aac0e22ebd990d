"""Interface between decisions and training: published weights, and a place to leave experience."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from controller.learning.agent.inference.base import Inference
from controller.learning.agent.records import LearnerRecord
from controller.learning.agent.weights import WeightSet
from controller.learning.values import Experience

Prepare = Callable[[WeightSet], Inference]
"""Makes a weight set ready to decide."""


class Published(msgspec.Struct, frozen=True):
    """Weights ready for decisions; replaced as a whole, never changed."""

    weights: WeightSet
    inference: Inference


class Status(msgspec.Struct, frozen=True):
    """Status of training: steps so far, mean loss and error of the last step, and rejected experiences.

    `dropped` counts experiences that met a full backlog, `refused` those that did not fit or had non-finite values.
    `restarts` counts restarts of a training process; `problem` is the reason for the last one.
    """

    decisions: int = 0
    steps: int = 0
    loss: float = 0.0
    error: float = 0.0
    dropped: int = 0
    refused: int = 0
    duplicates: int = 0
    restarts: int = 0
    problem: str = ""


class Training(Protocol):
    """Takes experience and publishes weights."""

    @property
    def published(self) -> Published:
        """The newest weights that are ready."""
        ...

    @property
    def status(self) -> Status:
        """Status of training."""
        ...

    def give(self, experience: Experience) -> None:
        """Pass on an experience; never waits."""
        ...

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:
        """Return the published weights and the learner's state, after everything given was learned, or `at_once`.

        Raises LearningError if these are not reported in time.
        """
        ...

    def close(self) -> None:
        """End training."""
        ...
