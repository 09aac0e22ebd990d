"""Dense linear algebra of numpy and LAPACK: products, solutions, factorisations, vectors.

Products are held against sampled entries of higher precision, and as a whole against their action on a random vector
(Freivalds, 1977): C v = A (B v). Solutions are of systems whose solution is known.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import numpy as np

from controller.schedulers.probe.kernels.base import (
    SAMPLES,
    Array,
    InMemory,
    Maker,
    Sizes,
    Value,
    centred,
    fold,
    operand,
    relative_error,
)


class Gemm(InMemory):
    """C = A B; an input of A's or B's shape is that operand."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        generator = np.random.default_rng(seed)
        self._left = centred(generator, (m, k), dtype)
        self._right = centred(generator, (k, n), dtype)
        self._used = (self._left, self._right)
        self._rows = generator.integers(0, m, SAMPLES)
        self._columns = generator.integers(0, n, SAMPLES)
        self._vector = centred(generator, (n,), np.float64)

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Multiply; without an operand among the inputs these change an element of A."""
        left = operand(inputs, self._left.shape, self._left.dtype)
        right = operand(inputs, self._right.shape, self._right.dtype) if left is None else None
        if inputs and left is None and right is None:
            self._left[0, 0] = fold(inputs) - 1.5
        self._used = (self._left if left is None else left, self._right if right is None else right)
        found: Array = np.matmul(*self._used)
        return found

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled entries and on a random vector."""
        left, right = self._used
        return product_error(left, right, output, self._rows, self._columns, self._vector)


def product_error(  # noqa: PLR0917 - a product and where it is looked at
    left: Array, right: Array, output: Array, rows: Array, columns: Array, vector: Array
) -> float:
    """Return the larger of the errors of a product at sampled entries and on a vector."""
    if output.shape != (left.shape[0], right.shape[1]):
        return np.inf
    wide = left[rows].astype(np.longdouble) * right[:, columns].T.astype(np.longdouble)
    true, scale = wide.sum(axis=1), np.abs(wide).sum(axis=1).max(initial=0)
    at_samples = float(np.abs(output[rows, columns] - true).max(initial=0) / scale) if scale > 0 else 0.0
    on_vector = relative_error(
        output.astype(np.float64) @ vector, left.astype(np.float64) @ (right.astype(np.float64) @ vector)
    )
    return max(at_samples, on_vector) if np.isfinite(at_samples) else np.inf


def _gemm_bytes(width: int, sizes: Sizes) -> int:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return width * (m * k + k * n + m * n)


dgemm: Final = Maker(partial(Gemm, np.float64), partial(_gemm_bytes, 8))
sgemm: Final = Maker(partial(Gemm, np.float32), partial(_gemm_bytes, 4))
