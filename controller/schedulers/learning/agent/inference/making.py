"""Which inference serves a weight set on this machine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from controller.schedulers.learning.agent.inference.base import Inference
from controller.schedulers.learning.agent.inference.on_numpy import DenseInference, FlatInference, TokensInference
from controller.schedulers.learning.agent.settings import DecisionSettings
from controller.schedulers.learning.agent.weights import WeightSet

_SMALL: Final = 128
"""Hidden figures up to which numpy in float32 is as fast."""


def inference_of(weights: WeightSet, settings: DecisionSettings) -> Inference:
    """Return the fastest inference of a weight set that this machine has.

    Of small networks numpy is: PyTorch takes longer to be called than they take to be computed.
    """
    halved = weights.shape.hidden > _SMALL and settings.precision == "bfloat16"
    if weights.shape.form == "flat":
        return FlatInference(weights, halved=halved)
    if weights.shape.form == "dense":
        return DenseInference(weights, halved=halved)
    if not halved or find_spec("torch") is None:
        return TokensInference(weights)
    import torch  # noqa: PLC0415 - deciding works without it

    from controller.schedulers.learning.agent.inference import on_torch  # noqa: PLC0415 - as above

    if not on_torch.has_fast_bfloat16():
        return TokensInference(weights)
    return on_torch.TorchTokensInference(weights, torch.bfloat16)
