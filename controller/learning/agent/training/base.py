"""What decisions know of training: weights that it published, and somewhere to leave experience."""

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
    """Weights that decisions may use, ready; replaced as a whole, never changed."""

    weights: WeightSet
    inference: Inference


class Status(msgspec.Struct, frozen=True):
    """How training stands: steps so far, the last one's mean loss and error, and experiences that were not taken.

    `dropped` found the backlog full, `refused` did not fit or had figures that are not finite. `restarts` counts how
    often a process that trains had to be started again; `problem` is what ended it last.
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
        """How training stands."""
        ...

    def give(self, experience: Experience) -> None:
        """Leave an experience; never waits."""
        ...

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:
        """Return the published weights and what learning goes on from, after all that was given, or `at_once`.

        Raises LearningError where they are not told in time.
        """
        ...

    def close(self) -> None:
        """End training."""
        ...
