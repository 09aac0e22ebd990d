"""Dense systems of equations and matrix factorisations.

Matrices are well conditioned and need pivots: each row and column has one heavy entry, at a random place. So the
solution of a system is known to full precision, and rows are exchanged as in real programs.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from controller.probing.kernels.base import Array, Kernel, Maker, Sizes, numbers, relative_error


class Solve(Kernel):
    """X of A X = B, A of n x n, B with several columns: LAPACK's gesv by numpy."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        n = sizes["n"]
        generator = np.random.default_rng(seed)
        matrix = pivoting(generator, n)
        self._true = 1.0 + numbers(generator, (n, sizes["columns"]))
        super().__init__(matrix @ self._true, matrix)

    def compute(self, *data: Array) -> Array:
        """Solve: one call of LAPACK."""
        right, matrix = data
        solution: Array = np.linalg.solve(matrix, right)
        return solution

    def accuracy(self, output: Array) -> float:
        """Return the error against the known solution; for any system other than its own, that of the residual."""
        right, matrix = self.data
        if output.shape != right.shape:
            return math.inf
        if self.is_own and self.lift == 0.0:
            return relative_error(output, self._true)
        scale = float(np.abs(matrix).sum(axis=1).max() * np.abs(output).max())
        return relative_error(matrix @ output, right, scale)


class Lu(Kernel):
    """P A = L U of a matrix of n x n: LAPACK's getrf by scipy."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        generator = np.random.default_rng(seed)
        super().__init__(pivoting(generator, sizes["n"]))
        self._vector = numbers(generator, (sizes["n"],))
        self._pivots: Array = np.arange(0)

    def compute(self, *data: Array) -> Array:
        """Factorise: one call of LAPACK."""
        from scipy.linalg import lu_factor  # noqa: PLC0415 - only here it is needed

        factors: Array
        factors, self._pivots = lu_factor(data[0], check_finite=False)
        return factors

    def accuracy(self, output: Array) -> float:
        """Return the error of L (U v) against P (A v), v a random vector."""
        from scipy.linalg.blas import dtrmv  # noqa: PLC0415 - only here it is needed

        (matrix,) = self.data
        if output.shape != matrix.shape:
            return math.inf
        product = dtrmv(output, dtrmv(output, self._vector), lower=1, diag=1)
        true = self.truth(lambda: matrix @ self._vector).tolist()
        for row, pivot in enumerate(self._pivots.tolist()):
            true[row], true[pivot] = true[pivot], true[row]
        return relative_error(product, np.array(true))


class Cholesky(Kernel):
    """A = L L' of a symmetric, positive definite matrix of n x n: LAPACK's potrf by numpy."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        n = sizes["n"]
        generator = np.random.default_rng(seed)
        half = numbers(generator, (n, n))
        super().__init__(half + half.T + 4.0 * math.sqrt(n) * np.eye(n))
        self._vector = numbers(generator, (n,))

    def compute(self, *data: Array) -> Array:
        """Factorise: one call of LAPACK."""
        factor: Array = np.linalg.cholesky(data[0])
        return factor

    def accuracy(self, output: Array) -> float:
        """Return the error of L (L' v) against A v, v a random vector; LAPACK reads only the lower half of A."""
        (matrix,) = self.data
        if output.shape != matrix.shape:
            return math.inf
        lower = np.tril(matrix)
        true = lower @ self._vector + np.tril(matrix, -1).T @ self._vector
        return relative_error(output @ (output.T @ self._vector), true)


class Qr(Kernel):
    """A = Q R of a matrix of m x n; its output is R: LAPACK's geqrf by numpy."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        generator = np.random.default_rng(seed)
        super().__init__(numbers(generator, (sizes["m"], sizes["n"])))
        self._vector = numbers(generator, (sizes["n"],))

    def compute(self, *data: Array) -> Array:
        """Factorise: one call of LAPACK."""
        return np.asarray(np.linalg.qr(data[0], mode="r"))

    def accuracy(self, output: Array) -> float:
        """Return the error of R'(R v) against A'(A v), v a random vector: Q' Q is the identity."""
        (matrix,) = self.data
        if output.shape != (min(matrix.shape), matrix.shape[1]):
            return math.inf
        return relative_error(output.T @ (output @ self._vector), matrix.T @ (matrix @ self._vector))


def pivoting(generator: np.random.Generator, n: int, dtype: Any = np.float64) -> Array:  # noqa: ANN401 - as numpy's
    """Return a matrix of condition 10 at most, with one heavy entry in each row and column."""
    matrix = numbers(generator, (n, n), dtype)
    matrix[np.arange(n), generator.permutation(n)] += matrix.dtype.type(math.sqrt(n))
    return matrix


solve: Final = Maker(Solve, lambda s: 8 * (2 * s["n"] ** 2 + 3 * s["n"] * s["columns"]))
lu: Final = Maker(Lu, lambda s: 8 * 4 * s["n"] ** 2)
cholesky: Final = Maker(Cholesky, lambda s: 8 * 4 * s["n"] ** 2)
qr: Final = Maker(Qr, lambda s: 8 * (2 * s["m"] * s["n"] + s["n"] ** 2))
