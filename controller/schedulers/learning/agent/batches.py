"""Batches of experiences as tensors; observations of different numbers of actions are filled up and masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from controller.schedulers.learning.agent.weights import Shape
from controller.schedulers.learning.values import Experience, Observation

Tensor = Any
"""A tensor: torch's own types are not followed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations: `tokens` [batch, tokens, inputs], `absent` [batch, tokens] (None: all are there), `candidates`."""

    tokens: Tensor
    absent: Tensor | None
    candidates: Tensor


def seen(observations: Sequence[Observation], shape: Shape, device: str) -> Seen:
    """Return observations as tensors; raise LearningError for one that does not fit."""
    for observation in observations:
        shape.check(observation)
    most = max(observation.actions for observation in observations)
    possible = np.zeros((len(observations), most), np.bool_)
    for row, observation in zip(possible, observations, strict=True):
        row[: observation.actions] = observation.candidates
    if shape.form != "tokens":
        tokens = np.stack([observation.flat() for observation in observations])[:, None]
        return Seen(_tensor(tokens, device), None, _tensor(possible, device))
    tokens = np.zeros((len(observations), most, shape.inputs), np.float32)
    absent = np.ones((len(observations), most), np.bool_)
    for number, observation in enumerate(observations):
        tokens[number, : observation.actions] = observation.tokens()
        absent[number, : observation.actions] = False
    return Seen(_tensor(tokens, device), _tensor(absent, device) if absent.any() else None, _tensor(possible, device))


@dataclass(frozen=True, slots=True)
class Batch:
    """Experiences: `keep` [batch] is what a value of the following observation counts, 0 where there is none."""

    seen: Seen
    actions: Tensor
    rewards: Tensor
    following: Seen
    keep: Tensor


def batch_of(experiences: Sequence[Experience], shape: Shape, discount: float, time_ns: int, device: str) -> Batch:
    """Return experiences as tensors; with `time_ns` a discount is for that time, else for a decision."""
    keep = np.zeros(len(experiences), np.float32)
    for number, one in enumerate(experiences):
        if one.following is not None and one.following.candidates.any():
            keep[number] = discount ** (one.elapsed_ns / time_ns) if time_ns else discount
    return Batch(
        seen([one.observation for one in experiences], shape, device),
        _tensor(np.array([one.action for one in experiences], np.int64), device),
        _tensor(np.array([one.reward for one in experiences], np.float32), device),
        # What follows an end counts nothing: the observation itself stands in its place.
        seen([one.observation if one.following is None else one.following for one in experiences], shape, device),
        _tensor(keep, device),
    )


def _tensor(array: Any, device: str) -> Tensor:  # noqa: ANN401 - an array of any kind
    return torch.from_numpy(array).to(device)
