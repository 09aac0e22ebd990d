"""Inference by numpy, in float32: of `dense`, whose products may be halved, and the plain twin of `on_kernels`.

It serves processors with narrower registers, which numpy's own libraries use better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from controller.learning.agent.inference import folding
from controller.learning.agent.inference.base import Late, never, normalised, softmax
from controller.learning.agent.inference.folding import Affine
from controller.learning.agent.inference.kernels import stages
from controller.learning.agent.inference.kernels.compiled import compiled
from controller.learning.agent.inference.packing import LANES, Block, in_pairs, in_row, padded
from controller.learning.agent.weights import WeightSet
from controller.learning.values import Floats, Observation

# Products of a matrix in bfloat16 and a vector in float32, in machine code.
#
# A decision of one token reads every weight once, and between decisions other work evicts them from the processor's
# caches: its time is proportional to the bytes of its weights, half as many in bfloat16. Figures are widened as they
# are read; products and sums are float32, so no processor needs instructions for bfloat16.


class HalvedAffine:
    """A product and a sum whose weights are rounded to bfloat16."""

    def __init__(self, layer: Affine) -> None:
        self._outputs, self._inputs = layer.weight.shape
        columns = padded(self._outputs)
        self._block = Block([in_pairs(layer.weight), in_row(layer.bias, columns), in_row(layer.bias[:0], columns)])
        self._sizes = padded(self._inputs) // 2, columns // LANES
        self._product = compiled(stages.affine_of_one)

    def __call__(self, figures: Floats) -> Floats:
        """Return the weights times these figures, [inputs], plus the bias: [outputs]."""
        if figures.shape != (self._inputs,):
            raise ValueError(f"figures are {figures.shape}, not ({self._inputs},)")
        steps, vectors = self._sizes
        given = np.zeros(2 * steps, np.float32)
        given[: self._inputs] = figures
        outputs = np.empty(vectors * LANES, np.float32)
        self._product(given.ctypes.data, *self._block.addresses, outputs.ctypes.data, steps, vectors)
        return outputs[: self._outputs]


_Product = Callable[[Floats], Floats]


def _product(layer: folding.Affine, rows: Floats) -> Floats:
    product: Floats = layer.weight @ rows if rows.ndim == 1 else rows @ layer.weight.T
    product += layer.bias
    return product


class _FeedForward:
    """The part of a layer after the sums of its attention."""

    def __init__(self, part: folding.FeedForward, *, residual: bool) -> None:
        self._before, self._after, self._residual = part.before, part.after, residual
        self._wide, self._narrow = (partial(_product, layer) for layer in (part.wide, part.narrow))

    def __call__(self, rows: Floats) -> Floats:
        seen = normalised(rows, self._before.gain, self._before.bias)
        wide = self._wide(seen)
        np.maximum(wide, 0, out=wide)
        inside = self._narrow(wide)
        if self._residual:
            inside += seen
        return normalised(inside, self._after.gain, self._after.bias)


def with_one(rows: Floats) -> Floats:
    """Return rows with a 1 appended."""
    extended = np.ones((*rows.shape[:-1], rows.shape[-1] + 1), np.float32)
    extended[..., :-1] = rows
    return extended


class FlatInference:
    """The form `flat`: products of a matrix and a vector, as there is a single token."""

    def __init__(self, weights: WeightSet) -> None:
        layers = range(weights.shape.layers)
        self.version = weights.version
        self._shape = weights.shape
        self._start = partial(_product, folding.first_of_one(weights))
        self._attention = [
            partial(_product, folding.single_token_attention(weights, layer)) for layer in layers if layer
        ]
        self._residual = weights.shape.add == "residual"
        self._parts = [_FeedForward(folding.feed_forward(weights, layer), residual=self._residual) for layer in layers]
        self._head = folding.head(weights)

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        self._shape.check(observation)
        seen = self._parts[0](self._start(observation.flat()))
        for attention, part in zip(self._attention, self._parts[1:], strict=True):
            if late():
                return None
            seen = part(seen + attention(seen) if self._residual else attention(seen))
        return _product(self._head, seen)


class DenseInference:
    """The form `dense`; `halved` has weights in bfloat16."""

    def __init__(self, weights: WeightSet, *, halved: bool = False) -> None:
        self.version = weights.version
        self._shape = weights.shape
        self._hidden: list[_Product] = [
            HalvedAffine(layer) if halved else partial(_product, layer)
            for layer in (folding.affine(weights, f"hidden.{number}") for number in range(weights.shape.layers))
        ]
        self._head = folding.dense_head(weights)

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        self._shape.check(observation)
        seen = observation.flat()
        for layer in self._hidden:
            if late():
                return None
            seen = layer(seen)
            np.maximum(seen, 0, out=seen)
        return _product(self._head, seen)


class TokensInference:
    """The form `tokens`, for any number of them."""

    def __init__(self, weights: WeightSet) -> None:
        layers = range(weights.shape.layers)
        self.version = weights.version
        self._shape = weights.shape
        self._first = folding.first(weights)
        self._attention = [
            (
                folding.Affine(
                    weights.arrays[f"encoder.layers.{layer}.self_attn.in_proj_weight"],
                    weights.arrays[f"encoder.layers.{layer}.self_attn.in_proj_bias"],
                ),
                folding.affine(weights, f"encoder.layers.{layer}.self_attn.out_proj"),
            )
            for layer in layers
            if layer
        ]
        self._residual = weights.shape.add == "residual"
        self._parts = [_FeedForward(folding.feed_forward(weights, layer), residual=self._residual) for layer in layers]
        self._head = folding.head(weights)

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        """Return the value of every action; None if the deadline passed first."""
        return self._run(observation, late, [])

    def attention(self, observation: Observation) -> Floats:
        """Return each token's attention to the others, [layers, heads, tokens, tokens]; each row sums to 1."""
        attentions: list[Floats] = []
        self._run(observation, never, attentions)
        return np.stack(attentions)

    def _run(self, observation: Observation, late: Late, looked: list[Floats]) -> Floats | None:
        self._shape.check(observation)
        features = with_one(observation.tokens())
        looked.append(first_attention(self._first, features))
        seen = self._parts[0](mixed(features, looked[-1]) @ self._first.mixing)
        for (projection, out), part in zip(self._attention, self._parts[1:], strict=True):
            if late():
                return None
            added = _product(out, self._attended(_product(projection, seen), looked))
            if late():
                return None
            seen = part(seen + added if self._residual else added)
        return _product(self._head, seen)[:, 0]

    def _attended(self, projected: Floats, looked: list[Floats]) -> Floats:
        """Return the means of values under the attention, heads side by side."""
        count, heads = len(projected), self._shape.heads
        queries, keys, values = projected.reshape(count, 3, heads, -1).transpose(1, 2, 0, 3)
        scores: Floats = queries @ keys.transpose(0, 2, 1)
        looked.append(softmax(scores / np.float32(queries.shape[-1] ** 0.5)))
        return (looked[-1] @ values).transpose(1, 0, 2).reshape(count, -1)


def first_attention(first: folding.First, features: Floats) -> Floats:
    """Return each token's attention to the others in the first layer, [heads, tokens, tokens]."""
    scores: Floats = np.matmul(features @ first.scores, features.T)
    return softmax(scores)


def mixed(features: Floats, looked: Floats) -> Floats:
    """Return a token's features and their means under each head's attention, side by side: [tokens, k + heads * k]."""
    means = (looked @ features).transpose(1, 0, 2).reshape(len(features), -1)
    return np.concatenate([features, means], axis=1)
