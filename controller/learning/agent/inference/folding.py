"""Products of weights that are the same at every decision, computed once for a weight set.

- Between the input and the first layer's attention all is linear in a token's few features: scores of the first layer
  are a product of features, [inputs + 1] squared per head, and the outputs of its heads are a product of the features'
  means under the attention. No product with a hidden by hidden matrix is left.
- Attention over one token is 1: in `flat` the projections of values and output are one matrix per layer.
- The linear and the output layer have nothing between them, and only the mean of quantiles decides: one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.learning.agent.weights import WeightSet
from controller.learning.values import Floats

_Exact = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """A product and a sum: `weight` [outputs, inputs] and `bias` [outputs]."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """Gain and bias of a normalisation."""

    gain: Floats
    bias: Floats


@dataclass(frozen=True, slots=True, eq=False)
class FeedForward:
    """The part of a layer after its attention."""

    before: Norm
    wide: Affine
    narrow: Affine
    after: Norm


@dataclass(frozen=True, slots=True, eq=False)
class First:
    """The input and the first layer's attention, for features followed by a 1: k = inputs + 1 figures.

    `scores` [heads, k, k] stands between the features of two tokens. `mixing` [k + heads * k, hidden] turns a token's
    features, and their means under each head's attention, into the input of the first normalisation.
    """

    scores: Floats
    mixing: Floats


def affine(weights: WeightSet, name: str) -> Affine:
    """Return a linear layer unchanged."""
    return Affine(weights.arrays[f"{name}.weight"], weights.arrays[f"{name}.bias"])


def norm(weights: WeightSet, name: str) -> Norm:
    """Return a normalisation."""
    return Norm(weights.arrays[f"{name}.weight"], weights.arrays[f"{name}.bias"])


def feed_forward(weights: WeightSet, layer: int) -> FeedForward:
    """Return the part of a layer after its attention."""
    at = f"encoder.layers.{layer}"
    return FeedForward(
        norm(weights, f"{at}.norm1"),
        affine(weights, f"{at}.linear1"),
        affine(weights, f"{at}.linear2"),
        norm(weights, f"{at}.norm2"),
    )


def head(weights: WeightSet) -> Affine:
    """Return the linear and the output layer as one, yielding the mean of each action's quantiles."""
    output, output_bias = _mean_output(weights)
    linear = _exact(weights, "linear.weight")
    return _single(output @ linear, output @ _exact(weights, "linear.bias") + output_bias)


def dense_head(weights: WeightSet) -> Affine:
    """Return the output layer, yielding the mean of each action's quantiles."""
    return _single(*_mean_output(weights))


def single_token_attention(weights: WeightSet, layer: int) -> Affine:
    """Return a layer's attention for a single token: values, then the output's projection."""
    at, hidden = f"encoder.layers.{layer}.self_attn", weights.shape.hidden
    value = _exact(weights, f"{at}.in_proj_weight")[2 * hidden :]
    value_bias = _exact(weights, f"{at}.in_proj_bias")[2 * hidden :]
    out, out_bias = _exact(weights, f"{at}.out_proj.weight"), _exact(weights, f"{at}.out_proj.bias")
    return _single(out @ value, out @ value_bias + out_bias)


def first(weights: WeightSet) -> First:
    """Return the input and the first layer's attention in terms of features."""
    at, heads = "encoder.layers.0.self_attn", weights.shape.heads
    embed = np.column_stack([_exact(weights, "embed.weight"), _exact(weights, "embed.bias")])
    projected = _exact(weights, f"{at}.in_proj_weight") @ embed
    projected[:, -1] += _exact(weights, f"{at}.in_proj_bias")
    queries, keys, values = projected.reshape(3, heads, -1, embed.shape[1])
    scores = np.einsum("hdi,hdj->hij", queries, keys) / np.sqrt(queries.shape[1])
    out = _exact(weights, f"{at}.out_proj.weight").reshape(weights.shape.hidden, heads, -1)
    mixed = np.einsum("ohd,hdi->hio", out, values)
    # Without residuals a token adds nothing of its own but what attention gives it.
    own = np.zeros_like(embed.T) if weights.shape.add == "noise" else embed.T.copy()
    own[-1] += _exact(weights, f"{at}.out_proj.bias")
    return First(scores.astype(np.float32), np.concatenate([own, *mixed]).astype(np.float32))


def first_of_one(weights: WeightSet) -> Affine:
    """Return the input and the first layer's attention for a single token: all heads see it, and add up."""
    mixing = first(weights).mixing
    start = mixing.reshape(-1, weights.shape.inputs + 1, mixing.shape[1]).sum(axis=0).T
    return Affine(start[:, :-1].copy(), start[:, -1].copy())


def _mean_output(weights: WeightSet) -> tuple[_Exact, _Exact]:
    shape = weights.shape
    output = _exact(weights, "output.weight").reshape(shape.actions, shape.quantiles, shape.hidden)
    return output.mean(axis=1), _exact(weights, "output.bias").reshape(shape.actions, shape.quantiles).mean(axis=1)


def _exact(weights: WeightSet, name: str) -> _Exact:
    return weights.arrays[name].astype(np.float64)


def _single(weight: _Exact, bias: _Exact) -> Affine:
    return Affine(weight.astype(np.float32), bias.astype(np.float32))
