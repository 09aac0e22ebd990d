"""Weights of a network as arrays: names and shapes, initial values, and immutable sets of them with a version.

Names are those that PyTorch gives the parameters of `agent.network`, the readable reference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.learning.agent.settings import Add, Form, NetworkSettings, Output
from controller.learning.errors import LearningError
from controller.learning.values import COMMON, Floats, Observation

LOW: Final = "range.low"
HIGH: Final = "range.high"
"""Names of the least and the most that each feature was in training, where a network is guarded."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a network: `inputs` and `outputs` of a token (one for each action and quantile), and within.

    `tokens` has one action per token; `flat` and `dense` have `actions`, and serve only observations with that many.
    """

    form: Form
    inputs: int
    actions: int
    quantiles: int
    hidden: int
    heads: int
    layers: int
    feed_forward: int
    output: Output = "values"
    add: Add = "residual"
    guard: float | None = None

    @classmethod
    def of(cls, settings: NetworkSettings, observation: Observation) -> Shape:
        """Return the sizes of a network for observations like this one."""
        inputs, actions = len(observation.flat()), observation.actions
        if settings.form == "tokens":
            inputs, actions = observation.tokens().shape[1], 1
        shape = cls(
            settings.form,
            inputs,
            actions,
            settings.quantiles,
            settings.hidden,
            settings.heads,
            settings.layers,
            settings.feed_forward,
            settings.output or "values",
            settings.add or "residual",
            settings.guard,
        )
        return shape if settings.form != "dense" else _dense(shape, settings.dense_layers)

    @property
    def outputs(self) -> int:
        """Number of outputs per token."""
        return self.actions * self.quantiles

    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Return the size of every weight by its name, in serialisation order; with a guard, also of ranges."""
        sizes = _dense_parameters(self) if self.form == "dense" else _transformer_parameters(self)
        return sizes if self.guard is None else sizes | {LOW: (self.inputs,), HIGH: (self.inputs,)}

    def fits(self, observation: Observation) -> bool:
        """Return whether such a network can take an observation."""
        if not observation.actions:
            return False
        if self.form == "tokens":
            return COMMON + observation.figures == self.inputs
        return (observation.actions, len(observation.row)) == (self.actions, self.inputs)

    def check(self, observation: Observation) -> None:
        """Raise LearningError for an observation that such a network cannot take."""
        if not self.fits(observation):
            raise LearningError(
                f"an observation of {observation.actions} actions with {observation.figures} figures each does not fit"
                f" a network {self.form} made for {self._made_for()}"
            )

    def _made_for(self) -> str:
        figures = (self.inputs - COMMON) // self.actions
        return f"{figures} figures each" if self.form == "tokens" else f"{self.actions} actions with {figures}"


def _transformer_parameters(shape: Shape) -> dict[str, tuple[int, ...]]:
    hidden, wide = shape.hidden, shape.feed_forward
    sizes: dict[str, tuple[int, ...]] = {"embed.weight": (hidden, shape.inputs), "embed.bias": (hidden,)}
    for layer in range(shape.layers):
        at = f"encoder.layers.{layer}."
        sizes |= {
            f"{at}self_attn.in_proj_weight": (3 * hidden, hidden),
            f"{at}self_attn.in_proj_bias": (3 * hidden,),
            f"{at}self_attn.out_proj.weight": (hidden, hidden),
            f"{at}self_attn.out_proj.bias": (hidden,),
            f"{at}linear1.weight": (wide, hidden),
            f"{at}linear1.bias": (wide,),
            f"{at}linear2.weight": (hidden, wide),
            f"{at}linear2.bias": (hidden,),
            f"{at}norm1.weight": (hidden,),
            f"{at}norm1.bias": (hidden,),
            f"{at}norm2.weight": (hidden,),
            f"{at}norm2.bias": (hidden,),
        }
    return sizes | {
        "linear.weight": (hidden, hidden),
        "linear.bias": (hidden,),
        "output.weight": (shape.outputs, hidden),
        "output.bias": (shape.outputs,),
    }


def _dense_parameters(shape: Shape) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {}
    for layer in range(shape.layers):
        sizes |= {
            f"hidden.{layer}.weight": (shape.hidden, shape.hidden if layer else shape.inputs),
            f"hidden.{layer}.bias": (shape.hidden,),
        }
    return sizes | {"output.weight": (shape.outputs, shape.hidden), "output.bias": (shape.outputs,)}


def _dense(flat: Shape, layers: int) -> Shape:
    """Return the fully connected network with as many weights as a Transformer that sees the whole as one token.

    With L hidden layers of width w these are (L - 1) w^2 + (inputs + outputs + L) w + outputs.
    """
    budget = sum(math.prod(size) for size in _transformer_parameters(flat).values()) - flat.outputs
    linear = flat.inputs + flat.outputs + layers
    if layers == 1:
        width = budget / linear
    else:
        square = layers - 1
        width = (math.sqrt(linear**2 + 4 * square * budget) - linear) / (2 * square)
    sizes = (max(1, round(width)), 1, layers, 1)
    return Shape("dense", flat.inputs, flat.actions, flat.quantiles, *sizes, flat.output, guard=flat.guard)


@dataclass(frozen=True, slots=True, eq=False)
class WeightSet:
    """Immutable weights of a network; version 0 has learned nothing."""

    shape: Shape
    arrays: Mapping[str, Floats]
    version: int = 0

    def __post_init__(self) -> None:
        expected = self.shape.parameters()
        if list(self.arrays) != list(expected):
            odd = sorted(set(self.arrays) ^ set(expected))
            raise LearningError(f"weights of a network {self.shape.form}: missing, unknown or out of order: {odd}")
        for name, size in expected.items():
            array = self.arrays[name]
            if array.shape != size or array.dtype != np.float32:
                raise LearningError(f"weight {name} is {array.dtype} of {array.shape}, expected float32 of {size}")
            array.flags.writeable = False

    @property
    def is_finite(self) -> bool:
        """True if every weight is finite."""
        return all(np.isfinite(array).all() for array in self.arrays.values())

    def to_bytes(self) -> bytes:
        """Return all weights in their order, float32 as this machine has it."""
        return b"".join(array.tobytes() for array in self.arrays.values())

    @classmethod
    def from_buffer(cls, shape: Shape, buffer: memoryview | bytes, version: int) -> WeightSet:
        """Return weights from a buffer, in their order, without a copy; raise LearningError for a wrong size."""
        sizes = shape.parameters()
        expected = 4 * sum(math.prod(size) for size in sizes.values())
        if len(buffer) != expected:
            raise LearningError(f"weights of {len(buffer)} bytes, where a network {shape.form} has {expected}")
        arrays, start = {}, 0
        for name, size in sizes.items():
            count = math.prod(size)
            arrays[name] = np.frombuffer(buffer, np.float32, count, 4 * start).reshape(size)
            start += count
        return cls(shape, arrays, version)


def gaussian_start(shape: Shape, deviation: float, generator: np.random.Generator) -> WeightSet:
    """Return initial weights: Gaussian, biases 0, gains of normalisation 1; ranges of features are empty, 1 to 0."""
    arrays: dict[str, Floats] = {}
    for name, size in shape.parameters().items():
        if name.endswith("bias") or name == HIGH:
            arrays[name] = np.zeros(size, np.float32)
        elif ".norm" in name or name == LOW:
            arrays[name] = np.ones(size, np.float32)
        else:
            arrays[name] = (deviation * generator.standard_normal(size)).astype(np.float32)
    return WeightSet(shape, arrays)
