"""Weights as the kernels read them: in one block of memory, in the order in which a decision needs them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.learning.agent.inference.kernels.halving import halve
from controller.learning.values import Floats
from dataplane.native import kernel_library

LANES: Final = 16
BLOCK: Final = 64
"""Outputs and inputs are padded with zeros to a multiple of this."""
_LINE_BYTES: Final = 64

Words = npt.NDArray[np.uint32]


def padded(count: int, to: int = BLOCK) -> int:
    """Return a count rounded up to a multiple of a number."""
    return -(-count // to) * to


def in_pairs(weight: Floats) -> Words:
    """Return weights [outputs, inputs], rounded to bfloat16, as [vectors, pairs of inputs, 16]."""
    outputs, inputs = weight.shape
    pairs = padded(inputs) // 2
    packed = np.zeros((padded(outputs) // LANES, pairs, LANES), np.uint32)
    given = np.ascontiguousarray(weight, np.float32)  # by its address: weight sets cannot be written to
    _halve()(given.ctypes.data, outputs, inputs, pairs, packed)
    return packed


def in_figures(weight: Floats, to: int = BLOCK) -> Words:
    """Return weights [outputs, inputs] in float32 as [vectors, inputs padded `to` a multiple, 16]."""
    outputs, inputs = weight.shape
    whole = np.zeros((padded(outputs), padded(inputs, to)), np.float32)
    whole[:outputs, :inputs] = weight
    return np.ascontiguousarray(whole.reshape(-1, LANES, whole.shape[1]).transpose(0, 2, 1)).view(np.uint32)


def in_row(figures: Floats, columns: int) -> Words:
    """Return figures, or rows of them, padded with zeros."""
    row = np.zeros((*figures.shape[:-1], columns), np.float32)
    row[..., : figures.shape[-1]] = figures
    return row.view(np.uint32)


@cache
def _halve() -> Callable[..., None]:
    return kernel_library(halve).bind(halve)


class Block:
    """Memory for packed weights, one after another, each starting on a new cache line."""

    def __init__(self, parts: list[Words]) -> None:
        sizes = [padded(part.nbytes, _LINE_BYTES) for part in parts]
        self._memory = np.zeros(sum(sizes) + _LINE_BYTES, np.uint8)
        start = -self._memory.ctypes.data % _LINE_BYTES
        self.addresses: list[int] = []
        for part, size in zip(parts, sizes, strict=True):
            self._memory[start : start + part.nbytes] = part.reshape(-1).view(np.uint8)
            self.addresses.append(self._memory.ctypes.data + start)
            start += size
