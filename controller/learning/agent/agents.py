"""An agent: a decider over weights that training publishes, created new or from a checkpoint.

Without PyTorch an agent from a checkpoint decides, but does not learn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Generic, Literal, TypeVar

import msgspec
import numpy as np

from controller.learning.agent.deciding import Decider, Decision
from controller.learning.agent.inference.base import Inference
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.purpose import Kind, MadeFor
from controller.learning.agent.records import (
    Checkpoint,
    DeciderRecord,
    LearnerRecord,
    RunRecord,
    generator_from_bytes,
    generator_to_bytes,
    save_checkpoint,
)
from controller.learning.agent.settings import AgentSettings
from controller.learning.agent.training.base import Published, Status, Training
from controller.learning.agent.weights import Shape, WeightSet, gaussian_start
from controller.learning.errors import LearningError
from controller.learning.values import Chooser, Experience, Observation
from dataplane.blas_threads import tell_loaded

View = TypeVar("View")
Where = Literal["none", "inline", "thread", "process"]
"""Execution mode of training: off, inline with decisions, in a background thread, or in a process."""

_SAVE_WITHIN_S: Final = 60.0


class Agent(Generic[View]):
    """Decides, learns from the results, and can be saved."""

    def __init__(self, checkpoint: Checkpoint, training: Training, decider: Decider[View]) -> None:
        self._checkpoint = checkpoint
        self.training = training
        self.decider = decider

    @property
    def settings(self) -> AgentSettings:
        """Settings that the agent was created with."""
        return self._checkpoint.settings

    @property
    def published(self) -> Published:
        """The weights that decide now."""
        return self.training.published

    @property
    def status(self) -> Status:
        """Status of training."""
        return self.training.status

    def decide(self, observation: Observation, view: View) -> Decision:
        """Return the choice and its source; raise LearningError if nothing is possible."""
        return self.decider.decide(self.training.published.inference, observation, view)

    def choose(self, observation: Observation, view: View) -> int:
        """Return one of the observation's candidates."""
        return self.decide(observation, view).action

    def learn(self, experience: Experience) -> None:
        """Pass an experience to training."""
        self.training.give(experience)

    def save(
        self,
        path: Path,
        timeout_s: float = _SAVE_WITHIN_S,
        *,
        run: RunRecord | None = None,
        at_once: bool = False,
    ) -> None:
        """Write a checkpoint that resumes exactly; raise LearningError if training reports no state in time.

        With `at_once`, experience that still waits for a training thread or process is not learned first.
        """
        weights, learner = self.training.record(timeout_s, at_once=at_once)
        decider = DeciderRecord(
            generator_to_bytes(self.decider.generator), dict(self.decider.counts), self.decider.held
        )
        save_checkpoint(
            path,
            msgspec.structs.replace(
                self._checkpoint,
                version=weights.version,
                published=weights.to_bytes(),
                learner=learner,
                decider=decider,
                run=run,
            ),
        )

    def close(self) -> None:
        """End training."""
        self.training.close()


class NoTraining:
    """Fixed weights; experience is discarded."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self.status = Status()

    def give(self, experience: Experience) -> None:
        """Discard an experience."""

    def record(self, timeout_s: float, *, at_once: bool = False) -> tuple[WeightSet, LearnerRecord]:  # noqa: ARG002 - a protocol's
        """Raise LearningError: nothing is learned."""
        raise LearningError("an agent that does not train has nothing new to save")

    def close(self) -> None:
        """Do nothing: nothing runs."""


def new_checkpoint(settings: AgentSettings, observation: Observation, kind: Kind) -> Checkpoint:
    """Return an untrained agent for decisions of a kind and observations like this one.

    Raises LearningError for invalid settings.
    """
    settings.check()
    shape = Shape.of(settings.network, observation)
    start = gaussian_start(shape, settings.network.deviation, np.random.default_rng([settings.seed, 0]))
    return Checkpoint(MadeFor.of(kind, observation), settings, shape, start.version, start.to_bytes())


def agent_of(
    checkpoint: Checkpoint,
    fallback: Chooser[View],
    where: Where = "inline",
    clock_ns: Callable[[], int] | None = None,
) -> Agent[View]:
    """Return the agent of a checkpoint, which trains where it is told; LearningError if PyTorch is needed and missing.

    Without a clock, real time counts, except for an agent that trains inline: it is never late, so that the same seed
    gives the same decisions.
    """
    settings = checkpoint.settings
    if clock_ns is None:
        clock_ns = _stopped if where == "inline" else time.monotonic_ns
    generator = np.random.default_rng([settings.seed, 2])
    if checkpoint.decider is not None:
        generator = generator_from_bytes(checkpoint.decider.generator)
    decider = Decider(settings.decisions, fallback, generator, clock_ns)
    if checkpoint.decider is not None:
        decider.counts.update(checkpoint.decider.counts)
        decider.held = checkpoint.decider.held
    return Agent(checkpoint, training_of(checkpoint, where), decider)


def _stopped() -> int:
    return 0


def _use_one_thread(*, with_torch: bool) -> None:
    """Have numpy and PyTorch compute in the calling thread: handing small products to other threads takes longer.

    On a busy machine much longer: each product waits until all threads have had a processor.
    """
    if with_torch:
        import torch  # noqa: F401, PLC0415 - deciding works without it

    tell_loaded(1)


def training_of(checkpoint: Checkpoint, where: Where) -> Training:
    """Return the training back end of a checkpoint for this mode; raise LearningError if PyTorch is missing."""

    def prepare(weights: WeightSet) -> Inference:
        return inference_of(weights, checkpoint.settings.decisions)

    has_torch = find_spec("torch") is not None
    _use_one_thread(with_torch=has_torch and where in {"inline", "thread"})
    if where == "none":
        weights = checkpoint.weights()
        return NoTraining(Published(weights, prepare(weights)))
    if not has_torch:
        raise LearningError("training needs PyTorch, which is not installed: pip install 'millrace-net[train]'")
    if where == "process":
        from controller.learning.agent.training.process import ProcessTraining  # noqa: PLC0415 - few need it

        return ProcessTraining(checkpoint, prepare)
    # Takes seconds to load, and is not installed on every machine that decides.
    from controller.learning.agent.resuming import learner_of  # noqa: PLC0415
    from controller.learning.agent.training.inline import InlineTraining  # noqa: PLC0415
    from controller.learning.agent.training.thread import ThreadTraining  # noqa: PLC0415

    learner = learner_of(checkpoint)
    return InlineTraining(learner, prepare) if where == "inline" else ThreadTraining(learner, prepare)
