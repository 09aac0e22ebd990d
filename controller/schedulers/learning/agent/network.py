"""The networks as modules of PyTorch: what trains, and the readable reference of `agent.inference`.

Two standard encoder layers, then a linear layer, then an output layer, as the specification has them: nothing is named
between the last two. Whoever decides only does not need this module, nor PyTorch.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from controller.schedulers.learning.agent.weights import Shape, WeightSet

Tensor = Any
"""A tensor: torch's own types are not followed."""


class TransformerNetwork(nn.Module):  # type: ignore[misc]
    """Forms `flat` and `tokens`: observations as [batch, tokens, inputs] to values as [batch, actions, quantiles].

    `absent` [batch, tokens] is true where a shorter observation of the batch has no token.
    """

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(shape.hidden, shape.heads, shape.feed_forward, dropout, batch_first=True)
        self.embed = nn.Linear(shape.inputs, shape.hidden)
        self.encoder = nn.TransformerEncoder(layer, shape.layers, enable_nested_tensor=False)
        self.linear = nn.Linear(shape.hidden, shape.hidden)
        self.output = nn.Linear(shape.hidden, shape.outputs)
        self.quantiles = shape.quantiles

    def forward(self, tokens: Tensor, absent: Tensor | None = None) -> Tensor:
        """Return the value of every action, of each quantile."""
        seen = self.encoder(self.embed(tokens), src_key_padding_mask=absent)
        found = self.output(self.linear(seen))
        return found.reshape(found.shape[0], -1, self.quantiles)


class DenseNetwork(nn.Module):  # type: ignore[misc]
    """The form `dense`: hidden layers with rectifiers between, for [batch, 1, inputs], to compare."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        widths = [shape.inputs, *[shape.hidden] * shape.layers]
        self.hidden = nn.ModuleList(nn.Linear(one, other) for one, other in pairwise(widths))
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(shape.hidden, shape.outputs)
        self.quantiles = shape.quantiles

    def forward(self, tokens: Tensor, absent: Tensor | None = None) -> Tensor:  # noqa: ARG002 - one token, always there
        """Return the value of every action, of each quantile."""
        seen = tokens[:, 0]
        for layer in self.hidden:
            seen = self.dropout(torch.relu(layer(seen)))
        found = self.output(seen)
        return found.reshape(found.shape[0], -1, self.quantiles)


def network(weights: WeightSet, dropout: float, device: str = "cpu") -> Tensor:
    """Return the module of a weight set, with a copy of its weights."""
    kind = DenseNetwork if weights.shape.form == "dense" else TransformerNetwork
    module = kind(weights.shape, dropout)
    load(module, weights)
    return module.to(device)


def load(module: Tensor, weights: WeightSet) -> None:
    """Copy a weight set into a module of its shape."""
    module.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.arrays.items()})


def weights_of(module: Tensor, shape: Shape, version: int) -> WeightSet:
    """Return a copy of a module's weights."""
    state = module.state_dict()
    return WeightSet(shape, {name: state[name].cpu().numpy().copy() for name in shape.parameters()}, version)
