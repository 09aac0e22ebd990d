"""Kinds that factorise dense matrices, or solve with them.

Counts are those of LAPACK's own reference (Blackford and Dongarra, LAPACK Working Note 41, appendix C), additions and
multiplications together. The traffic is the compulsory one: the matrix is read and overwritten by its factors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.cluster.operators.counting import Counting, Kind, Sizes

_SOURCE: Final = "Blackford and Dongarra, LAPACK Working Note 41, appendix C"
_ITERATIVE: Final = "iterates until it converges: no count holds for all matrices"


def _lu(n: int) -> int:
    return (4 * n**3 - 3 * n**2 + 5 * n) // 6


def _qr(s: Sizes) -> int:
    m, n = s["m"], s["n"]
    if m >= n:
        return (6 * m * n**2 - 2 * n**3 + 3 * m * n + 3 * n**2 + 14 * n) // 3
    return (6 * n * m**2 - 2 * m**3 + 9 * n * m - 3 * m**2 + 14 * m) // 3


def _square(s: Sizes, width: float) -> tuple[float, float]:
    return s["n"] ** 2 * width, s["n"] ** 2 * width


def _rectangle(s: Sizes, width: float) -> tuple[float, float]:
    return s["m"] * s["n"] * width, s["m"] * s["n"] * width


def _with_columns(s: Sizes, width: float) -> tuple[float, float]:
    return (s["n"] ** 2 + s["n"] * s["columns"]) * width, s["n"] * s["columns"] * width


FACTORISATIONS: Final[Mapping[str, Kind]] = {
    "factorise": Kind(
        "P A = L U of a dense matrix of n x n: dgetrf",
        ("n",),
        lambda s: _lu(s["n"]),
        _square,
        _SOURCE,
    ),
    "solve": Kind(
        "X of A X = B by factors with pivots, A of n x n, B with so many columns: dgesv",
        ("n", "columns"),
        lambda s: _lu(s["n"]) + s["columns"] * (2 * s["n"] ** 2 - s["n"]),
        _with_columns,
        _SOURCE,
    ),
    "triangular-solve": Kind(
        "X of A X = B, A triangular of n x n, B with so many columns: dtrsm",
        ("n", "columns"),
        lambda s: s["columns"] * s["n"] ** 2,
        lambda s, w: ((s["n"] * (s["n"] + 1) / 2 + s["n"] * s["columns"]) * w, s["n"] * s["columns"] * w),
        _SOURCE,
    ),
    "cholesky": Kind(
        "A = L L' of a symmetric, positive definite matrix of n x n: dpotrf",
        ("n",),
        lambda s: (2 * s["n"] ** 3 + 3 * s["n"] ** 2 + s["n"]) // 6,
        lambda s, w: (s["n"] * (s["n"] + 1) / 2 * w, s["n"] * (s["n"] + 1) / 2 * w),
        _SOURCE,
    ),
    "qr": Kind("A = Q R of a matrix of m x n: dgeqrf", ("m", "n"), _qr, _rectangle, _SOURCE),
    "inverse": Kind(
        "the inverse of a dense matrix of n x n: dgetrf and dgetri",
        ("n",),
        lambda s: (
            (4 * s["n"] ** 3 - 3 * s["n"] ** 2 + 5 * s["n"]) // 6
            + (4 * s["n"] ** 3 - 3 * s["n"] ** 2 + 5 * s["n"]) // 3
        ),
        _square,
        _SOURCE,
    ),
    "least-squares": Kind(
        "X for which A X is nearest to B, A of m x n, B with so many columns: dgelsd",
        ("m", "n", "columns"),
        None,
        lambda s, w: ((s["m"] * s["n"] + s["m"] * s["columns"]) * w, s["n"] * s["columns"] * w),
        _ITERATIVE,
        counting=Counting.NOMINAL,
    ),
    "svd": Kind(
        "singular values, and vectors, of a matrix of m x n: dgesdd",
        ("m", "n"),
        None,
        _rectangle,
        _ITERATIVE,
        counting=Counting.NOMINAL,
    ),
    "eigen": Kind(
        "eigenvalues, and vectors, of a matrix of n x n: dsyevd, dgeev",
        ("n",),
        None,
        _square,
        _ITERATIVE,
        counting=Counting.NOMINAL,
    ),
}
