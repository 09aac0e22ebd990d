"""Products of a matrix in bfloat16 and a vector in float32, in machine code.

A decision of one token reads every weight once, and between decisions others push them out of the processor's caches:
its time is the bytes of its weights. In bfloat16 they are half as many. Figures are widened as they are read, products
and sums are float32, so no processor needs instructions for bfloat16.
"""

from __future__ import annotations

import numpy as np

from controller.learning.agent.inference.folding import Affine
from controller.learning.agent.inference.kernels import stages
from controller.learning.agent.inference.kernels.compiled import compiled
from controller.learning.agent.inference.packing import LANES, Block, in_pairs, in_row, padded
from controller.learning.values import Floats


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
        found = np.empty(vectors * LANES, np.float32)
        self._product(given.ctypes.data, *self._block.addresses, found.ctypes.data, steps, vectors)
        return found[: self._outputs]
