"""Inference of `tokens` by PyTorch: matrix products in bfloat16 if the processor has it, the rest in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional

from controller.learning.agent.inference import folding
from controller.learning.agent.inference.base import Late, never
from controller.learning.agent.inference.on_numpy import first_attention, mixed, with_one
from controller.learning.agent.weights import WeightSet
from controller.learning.values import Floats, Observation

Tensor = Any
"""A tensor: torch's own types are not followed."""


def has_fast_bfloat16() -> bool:
    """Return whether this processor has native bfloat16 multiplication."""
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


class _Linear:
    """A product and a sum. Weights in bfloat16 are stored as the processor's instructions take them.

    PyTorch would rearrange them at every call, which takes longer than the product of few rows.
    """

    def __init__(self, layer: folding.Affine, precision: Any) -> None:  # noqa: ANN401 - a torch.dtype
        self._bias = _tensor(layer.bias, precision)
        self._weight = _tensor(layer.weight, precision)
        self._is_arranged = precision is torch.bfloat16 and has_fast_bfloat16()
        if self._is_arranged:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight)  # noqa: SLF001 - there is no other

    def __call__(self, rows: Tensor, then: str = "none") -> Tensor:
        """Return the weights times each row plus the bias, rectified if "relu" follows."""
        if self._is_arranged:
            return torch.ops.mkldnn._linear_pointwise(rows, self._weight, self._bias, then, [], "")  # noqa: SLF001
        product = functional.linear(rows, self._weight, self._bias)
        return product.relu_() if then == "relu" else product


def _tensor(array: Floats, kind: Any) -> Tensor:  # noqa: ANN401 - a torch.dtype
    return torch.from_numpy(np.array(array)).to(kind)


class TorchTokensInference:
    """The form `tokens`, for any number of them, in float32 or with products in bfloat16."""

    def __init__(self, weights: WeightSet, precision: Any) -> None:  # noqa: ANN401 - a torch.dtype
        layers = range(weights.shape.layers)
        self.version = weights.version
        self._shape = weights.shape
        self._type = precision
        self._first = folding.first(weights)
        self._mixing = _tensor(self._first.mixing, torch.float32)
        self._attention = [
            (
                self._linear(
                    folding.Affine(
                        weights.arrays[f"encoder.layers.{layer}.self_attn.in_proj_weight"],
                        weights.arrays[f"encoder.layers.{layer}.self_attn.in_proj_bias"],
                    )
                ),
                self._linear(folding.affine(weights, f"encoder.layers.{layer}.self_attn.out_proj")),
            )
            for layer in layers
            if layer
        ]
        self._parts = [self._part(folding.feed_forward(weights, layer)) for layer in layers]
        head = folding.head(weights)
        self._head = (_tensor(head.weight, torch.float32), _tensor(head.bias, torch.float32))

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        self._shape.check(observation)
        features = with_one(observation.tokens())
        looked = first_attention(self._first, features)
        with torch.inference_mode():
            seen = self._fed_forward(0, torch.from_numpy(mixed(features, looked)) @ self._mixing)
            for layer, (projection, out) in enumerate(self._attention, start=1):
                if late():
                    return None
                attended = self._attended(projection(seen.to(self._type)))
                added = out(attended)
                if late():
                    return None
                seen = self._fed_forward(layer, seen + added)
            outputs: Floats = functional.linear(seen, *self._head)[:, 0].numpy()
        return outputs

    def _attended(self, projected: Tensor) -> Tensor:
        count, heads = projected.shape[0], self._shape.heads
        queries, keys, values = projected.view(count, 3, heads, -1).permute(1, 2, 0, 3)
        attended = functional.scaled_dot_product_attention(queries[None], keys[None], values[None])
        return attended[0].transpose(0, 1).reshape(count, -1)

    def _fed_forward(self, layer: int, rows: Tensor) -> Tensor:
        before, wide, narrow, after = self._parts[layer]
        hidden = (self._shape.hidden,)
        seen = functional.layer_norm(rows, hidden, *before)
        inside = wide(seen.to(self._type), "relu")
        return functional.layer_norm(seen + narrow(inside), hidden, *after)

    def _part(self, part: folding.FeedForward) -> tuple[Any, _Linear, _Linear, Any]:
        norms = [
            (_tensor(norm.gain, torch.float32), _tensor(norm.bias, torch.float32)) for norm in (part.before, part.after)
        ]
        return norms[0], self._linear(part.wide), self._linear(part.narrow), norms[1]

    def _linear(self, layer: folding.Affine) -> _Linear:
        return _Linear(layer, self._type)
