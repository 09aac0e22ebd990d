"""Which inference serves a weight set on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from controller.schedulers.learning.agent.inference.base import Inference
from controller.schedulers.learning.agent.inference.kernels.compiled import multiplies_pairs
from controller.schedulers.learning.agent.inference.on_kernels import FlatOnKernels, TokensOnKernels
from controller.schedulers.learning.agent.inference.on_numpy import DenseInference, FlatInference, TokensInference
from controller.schedulers.learning.agent.settings import DecisionSettings
from controller.schedulers.learning.agent.weights import Shape, WeightSet

_SMALL: Final = 128
"""Hidden figures up to which numpy in float32 is as fast."""


def inference_of(weights: WeightSet, settings: DecisionSettings) -> Inference:
    """Return the fastest inference of a weight set that this machine has.

    Of small networks that is numpy, which is as exact as training.
    """
    halved = _is_halved(weights.shape, settings)
    if weights.shape.form == "flat":
        return FlatOnKernels(weights) if halved else FlatInference(weights)
    if weights.shape.form == "dense":
        return DenseInference(weights, halved=halved)
    if not halved:
        return TokensInference(weights)
    if multiplies_pairs():
        return TokensOnKernels(weights)
    return _on_torch(weights) if find_spec("torch") is not None else TokensInference(weights)


def may_take_torch(shape: Shape, settings: DecisionSettings) -> bool:
    """Whether decisions may be taken by PyTorch, where that is installed."""
    return shape.form == "tokens" and _is_halved(shape, settings) and not multiplies_pairs()


def _is_halved(shape: Shape, settings: DecisionSettings) -> bool:
    return shape.hidden > _SMALL and settings.precision == "bfloat16"


def _on_torch(weights: WeightSet) -> Inference:
    """Return inference by PyTorch, which knows more instructions for bfloat16; by numpy where it knows none."""
    import torch  # noqa: PLC0415 - deciding works without it

    from controller.schedulers.learning.agent.inference import on_torch  # noqa: PLC0415 - as above

    if not on_torch.has_fast_bfloat16():
        return TokensInference(weights)
    return on_torch.TorchTokensInference(weights, torch.bfloat16)
