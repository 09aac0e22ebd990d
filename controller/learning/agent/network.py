"""The networks as modules of PyTorch: for training, and the readable reference of `agent.inference`.

Two standard encoder layers, then a linear layer, then an output layer, as in the specification, which names nothing
between the last two. Its words also describe noise where these layers have residuals, and outputs that are a
distribution: `NoisyLayer`, `distribution`. Deciding needs neither this module nor PyTorch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from controller.learning.agent.batches import Seen
from controller.learning.agent.weights import Shape, WeightSet

Tensor = Any
"""A tensor: torch's own types are not followed."""


class NoisyLayer(nn.TransformerEncoderLayer):  # type: ignore[misc]
    """An encoder layer without residuals: in training noise is added to what is normalised, as the specification says.

    Its standard deviation is `noise` times that of a sample's figures there.
    """

    noise = 0.0

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,  # noqa: ARG002 - PyTorch's own layer has it
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,  # noqa: ARG002 - as above
    ) -> Tensor:
        """Return the layer's output for [batch, tokens, hidden]."""
        attended = self.self_attn(src, src, src, key_padding_mask=src_key_padding_mask, need_weights=False)[0]
        return _fed_forward(self, src, attended)

    def noisy(self, figures: Tensor) -> Tensor:
        """Return figures with noise, in training."""
        if not (self.training and self.noise):
            return figures
        scale = figures.detach().std(dim=-1, keepdim=True, unbiased=False)
        return figures + self.noise * scale * torch.randn_like(figures)


class Range(nn.Module):  # type: ignore[misc]
    """The least and the most that each of a token's features was in training; saved with the weights, not learned."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.register_buffer("low", torch.ones(inputs))
        self.register_buffer("high", torch.zeros(inputs))

    def widen(self, seen: Seen) -> None:
        """Take in observations: of a token per action, only those of candidates."""
        rows = seen.tokens[:, 0] if seen.tokens.shape[1] == 1 else seen.tokens[seen.candidates]
        torch.minimum(self.low, rows.amin(dim=0), out=self.low)
        torch.maximum(self.high, rows.amax(dim=0), out=self.high)


class TransformerNetwork(nn.Module):  # type: ignore[misc]
    """Forms `flat` and `tokens`: observations as [batch, tokens, inputs] to values as [batch, actions, quantiles].

    `absent` [batch, tokens] is true where a shorter observation of the batch has no token.
    """

    def __init__(self, shape: Shape, dropout: float, noise: float = 0.0) -> None:
        super().__init__()
        kind = NoisyLayer if shape.add == "noise" else nn.TransformerEncoderLayer
        layer = kind(shape.hidden, shape.heads, shape.feed_forward, dropout, batch_first=True)
        if isinstance(layer, NoisyLayer):
            layer.noise = noise
        self.embed = nn.Linear(shape.inputs, shape.hidden)
        self.encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.linear = nn.Linear(shape.hidden, shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.outputs)
        self.quantiles = shape.quantiles
        self.is_one_an_action = shape.form == "tokens"
        self.is_distribution = shape.output == "distribution"
        self.range = None if shape.guard is None else Range(shape.inputs)

    def forward(self, tokens: Tensor, absent: Tensor | None = None) -> Tensor:
        """Return the value of every action, for each quantile."""
        seen = self.encoder(self.embed(tokens), src_key_padding_mask=absent)
        outputs = self.output(self.linear(seen))
        outputs = outputs.reshape(outputs.shape[0], -1, self.quantiles)
        return distribution(outputs, absent if self.is_one_an_action else None) if self.is_distribution else outputs

    def forward_chosen(self, tokens: Tensor, absent: Tensor | None, actions: Tensor) -> Tensor:
        """Return the quantiles [batch, quantiles] of the values of one action each, as in `forward`.

        Unused parts are not computed: in `flat`, the attention of a single token; in `tokens`, the last layer's output
        for the others, except where a distribution needs all of them.
        """
        if self.is_distribution:
            return _chosen(self.forward(tokens, absent).flatten(1), actions, self.quantiles)
        seen = self.embed(tokens)
        for layer in self.encoder.layers[:-1]:
            seen = _alone(layer, seen) if seen.shape[1] == 1 else layer(seen, src_key_padding_mask=absent)
        last = self.encoder.layers[-1]
        if seen.shape[1] == 1:
            seen = _alone(last, seen)
        else:
            own = seen.gather(1, actions[:, None, None].expand(-1, 1, seen.shape[2]))
            attended = last.self_attn(own, seen, seen, key_padding_mask=absent, need_weights=False)[0]
            seen = _fed_forward(last, own, attended)
        if self.is_one_an_action:
            return self.output(self.linear(seen[:, 0]))
        return _chosen(self.output(self.linear(seen[:, 0])), actions, self.quantiles)


def _alone(layer: Tensor, seen: Tensor) -> Tensor:
    """Return an encoder layer's output for a single token: its attention is 1, or dropped, one head at a time."""
    attention, hidden = layer.self_attn, seen.shape[2]
    values = functional.linear(seen, attention.in_proj_weight[2 * hidden :], attention.in_proj_bias[2 * hidden :])
    if layer.training and attention.dropout:
        ones = values.new_ones(seen.shape[0], 1, attention.num_heads, 1)
        heads = values.reshape(seen.shape[0], 1, attention.num_heads, -1)
        values = (heads * functional.dropout(ones, attention.dropout)).reshape(values.shape)
    return _fed_forward(layer, seen, attention.out_proj(values))


def _fed_forward(layer: Tensor, own: Tensor, attended: Tensor) -> Tensor:
    """Return the output of an encoder layer's part after its attention."""
    seen = layer.norm1(_added(layer, own, layer.dropout1(attended)))
    inside = layer.linear2(layer.dropout(torch.relu(layer.linear1(seen))))
    return layer.norm2(_added(layer, seen, layer.dropout2(inside)))


def _added(layer: Tensor, own: Tensor, figures: Tensor) -> Tensor:
    """Return what a layer normalises: a part's output and its input, or the output with noise."""
    return layer.noisy(figures) if isinstance(layer, NoisyLayer) else own + figures


def distribution(outputs: Tensor, absent: Tensor | None) -> Tensor:
    """Return outputs [batch, actions, 1] as probabilities that sum to 1 over the actions; 0 for absent ones."""
    if absent is not None:
        outputs = outputs.masked_fill(absent[:, :, None], -torch.inf)
    return torch.softmax(outputs.float(), dim=1)


def _chosen(outputs: Tensor, actions: Tensor, quantiles: int) -> Tensor:
    """Return one action's quantiles of outputs [batch, actions * quantiles]."""
    values = outputs.reshape(outputs.shape[0], -1, quantiles)
    return values.gather(1, actions[:, None, None].expand(-1, 1, quantiles))[:, 0]


class DenseNetwork(nn.Module):  # type: ignore[misc]
    """The form `dense`: hidden layers with rectifiers between, for [batch, 1, inputs]; for comparison."""

    def __init__(self, shape: Shape, dropout: float, noise: float = 0.0) -> None:  # noqa: ARG002 - it has no layer for it
        super().__init__()
        widths = [shape.inputs, *[shape.hidden] * shape.layers]
        self.hidden = nn.ModuleList(nn.Linear(before, other) for before, other in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(shape.hidden, shape.outputs)
        self.quantiles = shape.quantiles
        self.is_distribution = shape.output == "distribution"
        self.range = None if shape.guard is None else Range(shape.inputs)

    def forward(self, tokens: Tensor, absent: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one token, always there
        """Return the value of every action, for each quantile."""
        seen = tokens[:, 0]
        for layer in self.hidden:
            seen = self.dropout(torch.relu(layer(seen)))
        outputs = self.output(seen)
        outputs = outputs.reshape(outputs.shape[0], -1, self.quantiles)
        return distribution(outputs, None) if self.is_distribution else outputs

    def forward_chosen(self, tokens: Tensor, absent: Tensor | None, actions: Tensor) -> Tensor:
        """Return the quantiles [batch, quantiles] of the values of one action each."""
        return _chosen(self.forward(tokens, absent).flatten(1), actions, self.quantiles)


def network(weights: WeightSet, dropout: float, device: str = "cpu", *, noise: float = 0.0) -> Tensor:
    """Return the module of a weight set, with a copy of its weights."""
    kind = DenseNetwork if weights.shape.form == "dense" else TransformerNetwork
    module = kind(weights.shape, dropout, noise)
    load(module, weights)
    return module.to(device)


def load(module: Tensor, weights: WeightSet) -> None:
    """Copy a weight set into a module of its shape."""
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.arrays.items()})


def weights_of(module: Tensor, shape: Shape, version: int) -> WeightSet:
    """Return a copy of a module's weights."""
    state = module.state_dict()
    return WeightSet(shape, {name: state[name].cpu().numpy().copy() for name in shape.parameters()}, version)
