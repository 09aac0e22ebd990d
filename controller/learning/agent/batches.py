"""Batches of experiences as tensors; observations with different numbers of actions are padded and masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from controller.learning.agent.weights import Shape
from controller.learning.values import COMMON, Experience, Observation

Tensor = Any
"""A tensor: torch's own types are not followed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations: `tokens` [batch, tokens, inputs], `absent` [batch, tokens] (None: all present), `candidates`."""

    tokens: Tensor
    absent: Tensor | None
    candidates: Tensor


def seen(observations: Sequence[Observation], shape: Shape, device: str) -> Seen:
    """Return observations as tensors; raise LearningError for one that does not fit."""
    for observation in observations:
        shape.check(observation)
    counts = np.array([observation.actions for observation in observations])
    possible = np.zeros((len(observations), counts.max()), np.bool_)
    alike: dict[int, list[int]] = {count: np.flatnonzero(counts == count).tolist() for count in set(counts.tolist())}
    for count, rows in alike.items():
        possible[rows, :count] = np.stack([observations[row].candidates for row in rows])
    if shape.form != "tokens":
        tokens = np.stack([observation.flat() for observation in observations])[:, None]
        return Seen(_tensor(tokens, device), None, _tensor(possible, device))
    tokens = np.zeros((*possible.shape, shape.inputs), np.float32)
    for count, rows in alike.items():
        figures = np.stack([observations[row].flat() for row in rows])
        tokens[rows, :count, :COMMON] = figures[:, None, :COMMON]
        tokens[rows, :count, COMMON:] = figures[:, COMMON:].reshape(len(rows), -1, count).transpose(0, 2, 1)
    absent = np.arange(possible.shape[1]) >= counts[:, None]
    return Seen(_tensor(tokens, device), _tensor(absent, device) if absent.any() else None, _tensor(possible, device))


@dataclass(frozen=True, slots=True)
class Batch:
    """Experiences: `keep` [batch] is the weight of the following observation's value, 0 without one.

    `following` is None if no following value counts.
    """

    seen: Seen
    actions: Tensor
    rewards: Tensor
    following: Seen | None
    keep: Tensor


def batch_of(experiences: Sequence[Experience], shape: Shape, discount: float, time_ns: int, device: str) -> Batch:
    """Return experiences as tensors; with `time_ns` a discount is for that time, else for a decision."""
    keep = np.zeros(len(experiences), np.float32)
    for number, experience in enumerate(experiences):
        if experience.following is not None and experience.following.candidates.any():
            keep[number] = discount ** (experience.elapsed_ns / time_ns) if time_ns else discount
    return Batch(
        seen([experience.observation for experience in experiences], shape, device),
        _tensor(np.array([experience.action for experience in experiences], np.int64), device),
        _tensor(np.array([experience.reward for experience in experiences], np.float32), device),
        # What follows an end counts as nothing: the observation itself takes its place.
        seen(
            [
                experience.observation if experience.following is None else experience.following
                for experience in experiences
            ],
            shape,
            device,
        )
        if keep.any()
        else None,
        _tensor(keep, device),
    )


def _tensor(array: Any, device: str) -> Tensor:  # noqa: ANN401 - an array of any kind
    return torch.from_numpy(array).to(device)
