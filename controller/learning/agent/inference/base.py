"""Interface of all inference back ends, and the steps they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from controller.learning.values import Floats, Observation

Late = Callable[[], bool]
"""Callback that returns True after the deadline for an answer; called between parts of a network."""

EPSILON: Final = np.float32(1e-5)
"""Added to a variance before dividing by it, as in PyTorch."""


def never() -> bool:
    """Return False: no answer is late."""
    return False


class Inference(Protocol):
    """A published network, ready to decide."""

    @property
    def version(self) -> int:
        """Version of the weights; version 0 is untrained."""
        ...

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action, the mean of its quantiles; None if the deadline passed first.

        Raises LearningError for an observation that does not fit.
        """
        ...


def normalised(rows: Floats, gain: Floats, bias: Floats) -> Floats:
    """Return each row normalised to mean 0 and variance 1, then scaled and shifted."""
    # Plain functions: for small networks the methods' checks take as long as the computation.
    count = np.float32(rows.shape[-1])
    means: Floats = np.add.reduce(rows, axis=-1, keepdims=True)
    means /= count
    centred: Floats = rows - means
    variance = np.einsum("...i,...i->...", centred, centred)[..., None] / count
    centred /= np.sqrt(variance + EPSILON)
    centred *= gain
    centred += bias
    return centred


def softmax(scores: Floats) -> Floats:
    """Return weights that are positive and sum to 1 along the last axis."""
    weights: Floats = np.exp(scores - np.maximum.reduce(scores, axis=-1, keepdims=True))
    weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    return weights
