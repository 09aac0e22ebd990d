"""A learner as a record and back: it resumes exactly as if it had not been saved."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from controller.learning.agent.learner import Learner
from controller.learning.agent.records import (
    Checkpoint,
    HeldRecord,
    LearnerRecord,
    experience_from_bytes,
    experience_to_bytes,
    generator_from_bytes,
    generator_to_bytes,
)
from controller.learning.agent.weights import WeightSet
from controller.learning.errors import LearningError


def learner_record(learner: Learner) -> LearnerRecord:
    """Return the state from which a learner resumes, apart from its settings and published weights."""
    return LearnerRecord(
        learner.decisions,
        learner.steps,
        learner.refused,
        learner.weights(learner.published.version).to_bytes(),
        learner.optimiser.state(),
        generator_to_bytes(learner.generator),
        bytes(learner.torch_state.numpy()),
        tuple(
            HeldRecord(number, experience_to_bytes(experience), error) for number, experience, error in learner.buffer
        ),
        learner.buffer.next_number,
        learner.buffer.duplicates,
    )


def learner_of(checkpoint: Checkpoint) -> Learner:
    """Return a learner that resumes from a checkpoint; raise LearningError if its parts do not fit each other."""
    published = checkpoint.weights()
    learner = Learner(checkpoint.settings, published, checkpoint.settings.training.device)
    record = checkpoint.learner
    if record is None:
        return learner
    trained = WeightSet.from_buffer(checkpoint.shape, record.trained, checkpoint.version)
    learner.restore_networks(trained, published, record.optimiser)
    learner.decisions, learner.steps, learner.refused = record.decisions, record.steps, record.refused
    learner.generator = generator_from_bytes(record.generator)
    learner.torch_state = _torch_state(record.torch_state, learner.torch_state)
    if len(record.held) > learner.buffer.capacity:
        raise LearningError(f"{len(record.held)} experiences in a buffer of {learner.buffer.capacity}")
    held = [
        (held_record.number, experience_from_bytes(held_record.experience), held_record.error)
        for held_record in record.held
    ]
    learner.buffer.restore(held, record.next_number, record.duplicates)
    return learner


def _torch_state(data: bytes, like: Any) -> Any:  # noqa: ANN401 - torch's types are not followed
    if len(data) != len(like):
        raise LearningError(f"a random state of {len(data)} bytes, where PyTorch's has {len(like)}")
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())
