"""A network's weights as its stages read them, and the working memory of a decision."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from controller.learning.agent.inference import folding
from controller.learning.agent.inference.kernels import stages
from controller.learning.agent.inference.packing import (
    LANES,
    Block,
    Words,
    in_figures,
    in_pairs,
    in_row,
    padded,
)
from controller.learning.agent.weights import Shape, WeightSet
from controller.learning.values import Floats
from dataplane.native import Struct

Structure = TypeVar("Structure", bound=Struct)
_Pack = Callable[[Floats], Words]
_FEW: Final = 16
"""Initial room, in tokens."""


class Sizes:
    """The padded sizes of a network."""

    def __init__(self, shape: Shape) -> None:
        self.columns = padded(shape.hidden)
        self.wide = padded(shape.feed_forward)
        self.heads = shape.heads
        self.head_columns = padded(shape.hidden // shape.heads, LANES)
        self.attended = padded(self.heads * self.head_columns)
        self.projected = 3 * self.attended
        self.features = padded(shape.inputs + 1, LANES)
        self.folded = padded(self.heads * self.features)
        self.mixed = (1 + self.heads) * self.features
        if shape.form == "flat":
            self.mixed = padded(shape.inputs)
        self.longest = max(self.columns, self.wide, self.projected, self.folded)

    def told(self, hidden: int, mask: int, zeros: int, *, halved: bool) -> stages.Sizes:
        """Return the sizes for stages, with addresses of a row of `hidden` ones, followed by zeros, and of zeros."""
        return stages.Sizes(
            hidden,
            self.columns,
            self.wide,
            self.heads,
            self.head_columns,
            self.attended,
            self.projected,
            self.features,
            self.folded,
            self.mixed,
            halved,
            mask,
            zeros,
        )


class Room:
    """Working memory of a decision, for so many tokens: `mixed` begins with their features; `values` come out."""

    def __init__(self, sizes: Sizes, outputs: int, tokens: int) -> None:
        rows = self.rows = padded(tokens, LANES)
        self.mixed = np.zeros((rows, sizes.mixed), np.float32)
        self.values = np.zeros((rows, outputs), np.float32)
        columns = {
            "seen": sizes.columns,
            "added": sizes.columns,
            "normal": sizes.columns,
            "inside": sizes.wide,
            "projected": max(sizes.projected, sizes.folded),
            "keys": max(sizes.attended, sizes.features),
            "attended": sizes.attended,
            "turned": max(sizes.columns, sizes.wide, sizes.attended, sizes.mixed),
            "looked": 4,
        }
        kept: dict[str, Floats] = {name: np.zeros((rows, count), np.float32) for name, count in columns.items()}
        kept |= {"mixed": self.mixed, "values": self.values}
        self._kept = kept
        self.work = stages.Work(**{name: array.ctypes.data for name, array in kept.items()})
        self.address = self.work.address

    def array(self, name: str) -> Floats:
        """Return the contents of a part of it, to inspect a decision."""
        return self._kept[name]


class Rooms:
    """Pool of idle rooms: concurrent threads each get their own."""

    def __init__(self, sizes: Sizes, outputs: int) -> None:
        self._sizes = sizes
        self._outputs = outputs
        self._free = deque([Room(sizes, outputs, _FEW)])

    def take(self, tokens: int) -> Room:
        """Return room for this many tokens."""
        # Popping is atomic, where a check for emptiness first would race with other threads.
        try:
            room = self._free.pop()
        except IndexError:
            room = Room(self._sizes, self._outputs, tokens)
        if room.rows < tokens:
            room = Room(self._sizes, self._outputs, tokens)
        room.work.tokens = tokens
        return room

    def give_back(self, room: Room) -> None:
        """Return room to the pool for another decision."""
        self._free.append(room)


class Packed:
    """A network's weights, in the order of its stages: `first`, attention and feed-forward in turn, then `head`.

    These, and the sizes from `told`, are structures of addresses within it.
    """

    def __init__(self, weights: WeightSet, *, halved: bool) -> None:
        shape = weights.shape
        pack = in_pairs if halved else in_figures
        sizes = self.sizes = Sizes(shape)
        head = folding.head(weights)
        is_flat = shape.form == "flat"
        parts = [
            in_row(np.ones(shape.hidden, np.float32), sizes.columns),
            in_row(np.zeros(0, np.float32), sizes.longest),
        ]
        parts += _biased(folding.first_of_one(weights), pack) if is_flat else _first_of_tokens(weights, sizes)
        for layer in range(shape.layers):
            if layer:
                parts += _attention_parts(weights, layer, sizes, pack)
            parts += _fed_forward(weights, layer, sizes, pack)
        parts += [in_row(head.weight, sizes.columns), in_row(head.bias, len(head.bias))]
        self._block = Block(parts)
        places = iter(self._block.addresses)
        self.told = sizes.told(shape.hidden, next(places), next(places), halved=halved)
        self.first = _taken(stages.Affine if is_flat else stages.First, places)
        attention = stages.Affine if is_flat else stages.Attention
        self.feed_forward = [_taken(stages.FeedForward, places)]
        self.attention: list[Struct] = []
        for _ in range(1, shape.layers):
            self.attention.append(_taken(attention, places))
            self.feed_forward.append(_taken(stages.FeedForward, places))
        self.head = stages.Head(next(places), next(places), shape.actions)


def _taken(kind: type[Structure], places: Iterator[int]) -> Structure:
    """Return a structure of the next addresses."""
    return kind(*islice(places, len(kind._fields_)))


def _biased(layer: folding.Affine, pack: _Pack) -> list[Words]:
    return [pack(layer.weight), in_row(layer.bias, padded(len(layer.bias)))]


def _attention_parts(weights: WeightSet, layer: int, sizes: Sizes, pack: _Pack) -> list[Words]:
    """Return the parts of a later layer's attention: one product for a single token, else two."""
    if weights.shape.form == "flat":
        return _biased(folding.single_token_attention(weights, layer), pack)
    projection, out = _attention_of_tokens(weights, layer, sizes)
    return [*_biased(projection, pack), *_biased(out, pack)]


def _fed_forward(weights: WeightSet, layer: int, sizes: Sizes, pack: _Pack) -> list[Words]:
    part = folding.feed_forward(weights, layer)
    before, after = (
        [in_row(norm.gain, sizes.columns), in_row(norm.bias, sizes.columns)] for norm in (part.before, part.after)
    )
    return [*before, *_biased(part.wide, pack), *_biased(part.narrow, pack), *after]


def _first_of_tokens(weights: WeightSet, sizes: Sizes) -> list[Words]:
    """Return scores and mixing, each head's features padded."""
    first = folding.first(weights)
    heads, inputs, _ = first.scores.shape
    scores = np.zeros((heads, sizes.features, sizes.features), np.float32)
    scores[:, :inputs, :inputs] = first.scores.transpose(0, 2, 1)
    mixing = np.zeros((1 + heads, sizes.features, first.mixing.shape[1]), np.float32)
    mixing[:, :inputs] = first.mixing.reshape(1 + heads, inputs, -1)
    return [in_figures(scores.reshape(-1, sizes.features), LANES), in_figures(mixing.reshape(sizes.mixed, -1).T, LANES)]


def _attention_of_tokens(weights: WeightSet, layer: int, sizes: Sizes) -> tuple[folding.Affine, folding.Affine]:
    """Return projections and the output's, each head's columns padded; queries are scaled."""
    at, shape = f"encoder.layers.{layer}.self_attn", weights.shape
    size = shape.hidden // shape.heads
    projection = np.zeros((3, sizes.attended, shape.hidden), np.float32)
    bias = np.zeros((3, sizes.attended), np.float32)
    out = np.zeros((shape.hidden, sizes.attended), np.float32)
    for target, given in ((projection, "in_proj_weight"), (bias, "in_proj_bias")):
        array = weights.arrays[f"{at}.{given}"]
        array = array.reshape(3, shape.heads, size, *array.shape[1:])
        for number, factor in enumerate((size**-0.5, 1, 1)):
            _by_heads(target[number], sizes)[:, :size] = array[number] * np.float32(factor)
    _by_heads(out.T, sizes)[:, :size] = weights.arrays[f"{at}.out_proj.weight"].T.reshape(shape.heads, size, -1)
    return (
        folding.Affine(projection.reshape(-1, shape.hidden), bias.reshape(-1)),
        folding.Affine(out, weights.arrays[f"{at}.out_proj.bias"]),
    )


def _by_heads(columns: Floats, sizes: Sizes) -> Floats:
    """Return a view by heads: [heads, a head's columns, ...]."""
    used = columns[: sizes.heads * sizes.head_columns]
    return used.reshape(sizes.heads, sizes.head_columns, *used.shape[1:])
