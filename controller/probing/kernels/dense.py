"""Products of matrices and vectors, dense and sparse.

A product C is compared with sampled entries of higher precision, and as a whole with its action on a random vector
(Freivalds, 1977): C v = A (B v).
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Final

import numpy as np

from controller.probing.kernels.base import SAMPLES, Array, Kernel, Maker, Sizes, numbers, relative_error


class Gemm(Kernel):
    """C = A B, A of m x k, B of k x n."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        m, n, k = sizes["m"], sizes["n"], sizes["k"]
        generator = np.random.default_rng(seed)
        super().__init__(numbers(generator, (m, k), dtype), numbers(generator, (k, n), dtype))
        self._rows = generator.integers(0, m, SAMPLES)
        self._columns = generator.integers(0, n, SAMPLES)
        self._vector = numbers(generator, (n,))

    def compute(self, *data: Array) -> Array:
        """Multiply: one call of the BLAS."""
        left, right = data
        product: Array = left @ right
        return product

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled entries and on a random vector."""
        if output.shape != (self.data[0].shape[0], self.data[1].shape[1]):
            return math.inf
        entries, scale, on_vector = self.truth(self._true)
        at_samples = relative_error(output[self._rows, self._columns], entries, scale)
        return max(at_samples, relative_error(_times(output, self._vector), on_vector))

    def _true(self) -> tuple[Array, float, Array]:
        """Return sampled entries, the size of their terms' sums, and the product with the vector."""
        left, right = self.data
        wide = left[self._rows].astype(np.longdouble) * right[:, self._columns].T.astype(np.longdouble)
        scale = float(np.abs(wide).sum(axis=1).max(initial=0))
        return wide.sum(axis=1), scale, _times(left, _times(right, self._vector))


class Gemv(Kernel):
    """y = A x, A of m x n."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        m, n = sizes["m"], sizes["n"]
        generator = np.random.default_rng(seed)
        super().__init__(numbers(generator, (m, n), dtype), numbers(generator, (n,), dtype))
        self._rows = generator.integers(0, m, SAMPLES)

    def compute(self, *data: Array) -> Array:
        """Multiply: one call of the BLAS."""
        matrix, vector = data
        product: Array = matrix @ vector
        return product

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled entries and of the sum of all."""
        if output.shape != (self.data[0].shape[0],):
            return math.inf
        entries, scale, whole = self.truth(self._true)
        total = float(output.sum(dtype=np.float64))
        at_samples = relative_error(output[self._rows], entries, scale)
        return max(at_samples, relative_error(total, whole, scale * math.sqrt(output.size)))

    def _true(self) -> tuple[Array, float, float]:
        """Return sampled entries, the size of their terms' sums, and the sum of all entries."""
        matrix, vector = self.data
        wide = matrix[self._rows].astype(np.longdouble) * vector.astype(np.longdouble)
        whole = float(matrix.sum(axis=0, dtype=np.float64) @ vector.astype(np.float64))
        return wide.sum(axis=1), float(np.abs(wide).sum(axis=1).max(initial=0)), whole


class Dot(Kernel):
    """x'y, of n numbers each."""

    def __init__(self, dtype: Any, sizes: Sizes, seed: int) -> None:  # noqa: ANN401 - as numpy's
        generator = np.random.default_rng(seed)
        super().__init__(numbers(generator, (sizes["n"],), dtype), numbers(generator, (sizes["n"],), dtype))

    def compute(self, *data: Array) -> Array:
        """Multiply: one call of the BLAS."""
        product: Array = np.dot(*data)
        return product

    def accuracy(self, output: Array) -> float:
        """Return the error against the sum in higher precision, over the vectors' norms."""
        return math.inf if np.shape(output) else relative_error(float(output), *self.truth(self._true))

    def _true(self) -> tuple[np.longdouble, float]:
        left, right = (vector.astype(np.float64, copy=False) for vector in self.data)
        total: np.longdouble = (left * right).sum(dtype=np.longdouble)
        return total, float(np.linalg.norm(left) * np.linalg.norm(right))


class Spmv(Kernel):
    """y = A x, A sparse in compressed rows; its nonzeros lie on bands, as for grids."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        from scipy.sparse import csr_array  # noqa: PLC0415 - only here it is needed

        rows, columns, nonzeros = sizes["rows"], sizes["columns"], sizes["nonzeros"]
        generator = np.random.default_rng(seed)
        starts, indices = banded(rows, columns, nonzeros)
        values = numbers(generator, (nonzeros,))
        super().__init__(numbers(generator, (columns,)), values)
        self.starts, self.indices = starts, indices
        self._matrix = csr_array((values, indices, starts), shape=(rows, columns))
        self._rows = generator.integers(0, rows, SAMPLES)

    def compute(self, *data: Array) -> Array:
        """Multiply."""
        vector, values = data
        if values is not self._matrix.data:
            self._matrix.data = values
        product: Array = self._matrix @ vector
        return product

    def accuracy(self, output: Array) -> float:
        """Return the larger of the errors at sampled rows and of the sum of all."""
        if output.shape != (self._matrix.shape[0],):
            return math.inf
        entries, scale, whole = self.truth(self._true)
        at_rows = relative_error(output[self._rows], entries, scale)
        return max(at_rows, relative_error(float(output.sum()), whole, scale * math.sqrt(output.size)))

    def _true(self) -> tuple[Array, float, float]:
        """Return sampled rows, the size of their terms' sums, and the sum of all entries."""
        vector, values = self.data
        terms = [self._terms(row, vector, values) for row in self._rows]
        scale = max(float(np.abs(term).sum()) for term in terms)
        return np.array([term.sum() for term in terms]), scale, float(values @ vector[self.indices])

    def _terms(self, row: int, vector: Array, values: Array) -> Array:
        part = slice(self.starts[row], self.starts[row + 1])
        wide: Array = values[part].astype(np.longdouble) * vector[self.indices[part]].astype(np.longdouble)
        return wide


def banded(rows: int, columns: int, nonzeros: int) -> tuple[Array, Array]:
    """Return row starts and columns for this many nonzeros: each row has its share, on and around the diagonal.

    Neighbours lie 1, g and g^2 away, g the root of the columns, as in grids of two and three dimensions.
    """
    starts = np.arange(rows + 1, dtype=np.int64) * nonzeros // rows
    row = np.repeat(np.arange(rows, dtype=np.int64), np.diff(starts))
    position = np.arange(nonzeros, dtype=np.int64) - starts[row]
    grid = max(2, math.isqrt(columns))
    near = np.array([0, -1, 1, -grid, grid, -grid - 1, grid + 1, -grid + 1, grid - 1], dtype=np.int64)
    offset = np.where(
        position < near.size, near[position % near.size], (position - near.size // 2) * grid // 2 + position
    )
    indices = (row * columns // rows + offset) % columns
    return starts.astype(np.int32), indices.astype(np.int32)


def _times(matrix: Array, vector: Array) -> Array:
    """Return a matrix times a vector in fp64."""
    product: Array = matrix.astype(np.float64, copy=False) @ vector
    return product


def _gemm_bytes(width: int, sizes: Sizes) -> int:
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    return width * (m * k + k * n + 2 * m * n)


dgemm: Final = Maker(partial(Gemm, np.float64), partial(_gemm_bytes, 8))
sgemm: Final = Maker(partial(Gemm, np.float32), partial(_gemm_bytes, 4))
dgemv: Final = Maker(partial(Gemv, np.float64), lambda s: 8 * (s["m"] * s["n"] + s["m"] + s["n"]))
ddot: Final = Maker(partial(Dot, np.float64), lambda s: 8 * 2 * s["n"])
spmv: Final = Maker(Spmv, lambda s: 12 * s["nonzeros"] + 4 * s["rows"] + 8 * (s["rows"] + s["columns"]))
