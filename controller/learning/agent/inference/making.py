"""Choose the inference back end for a weight set on this machine."""

from __future__ import annotations

from typing import Final

import numpy as np

from controller.learning.agent.inference.base import Inference, Late, never, softmax
from controller.learning.agent.inference.kernels.processor import HAS_WIDE_REGISTERS, MULTIPLIES_PAIRS
from controller.learning.agent.inference.on_kernels import FlatOnKernels, TokensOnKernels
from controller.learning.agent.inference.on_numpy import DenseInference, FlatInference, TokensInference
from controller.learning.agent.settings import DecisionSettings
from controller.learning.agent.weights import HIGH, LOW, Shape, WeightSet
from controller.learning.errors import UnfamiliarError
from controller.learning.values import Floats, Observation

_SMALL: Final = 128
"""Hidden figures up to which weights fit into the core's own cache, and are float32."""


class Distribution:
    """An inference whose outputs become probabilities over the actions."""

    def __init__(self, outputs: Inference) -> None:
        self._outputs = outputs
        self.version = outputs.version

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the probability of every action; None if the deadline passed first."""
        outputs = self._outputs.values(observation, late)
        return None if outputs is None else softmax(outputs)


class Guarded:
    """An inference that has values only within the range of features seen in training, `guard` wider on each side."""

    def __init__(self, inner: Inference, weights: WeightSet, guard: float) -> None:
        self._inner, self._shape = inner, weights.shape
        self._low, self._high = weights.arrays[LOW] - np.float32(guard), weights.arrays[HIGH] + np.float32(guard)
        self.version = inner.version

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; raise UnfamiliarError outside the range, None after the deadline."""
        self._shape.check(observation)
        is_one_an_action = self._shape.form == "tokens"
        rows = observation.tokens()[observation.candidates] if is_one_an_action else observation.row
        if (rows < self._low).any() or (rows > self._high).any():
            raise UnfamiliarError("a feature is outside the range seen in training")
        return self._inner.values(observation, late)


def inference_of(weights: WeightSet, settings: DecisionSettings) -> Inference:
    """Return this machine's fastest inference of a weight set."""
    shape, inference = weights.shape, _outputs_of(weights, settings)
    if shape.output == "distribution":
        inference = Distribution(inference)
    return inference if shape.guard is None else Guarded(inference, weights, shape.guard)


def _outputs_of(weights: WeightSet, settings: DecisionSettings) -> Inference:
    halved = _is_halved(weights.shape, settings)
    if weights.shape.form == "dense":
        return DenseInference(weights, halved=halved)
    if weights.shape.add == "noise":
        # Machine code always adds residuals.
        return FlatInference(weights) if weights.shape.form == "flat" else TokensInference(weights)
    if weights.shape.form == "flat":
        return FlatOnKernels(weights, halved=halved) if halved or HAS_WIDE_REGISTERS else FlatInference(weights)
    if halved and MULTIPLIES_PAIRS:
        return TokensOnKernels(weights, halved=True)
    return TokensOnKernels(weights, halved=False) if HAS_WIDE_REGISTERS else TokensInference(weights)


def _is_halved(shape: Shape, settings: DecisionSettings) -> bool:
    return shape.hidden > _SMALL and settings.precision == "bfloat16"
