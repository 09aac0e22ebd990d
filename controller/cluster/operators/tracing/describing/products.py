"""Products of matrices and vectors, by any function."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from controller.cluster.operators.tracing.describing.formats import described
from controller.cluster.operators.tracing.values import Described


def product(name: str, first: Any, second: Any, result: Any) -> Described | None:  # noqa: ANN401
    """Describe a product of two operands: numpy's matmul, dot, inner, vdot, vecdot, matvec or vecmat."""
    left, right = np.shape(first), np.shape(second)
    dtype = np.result_type(first, second)
    size = np.size(result)
    if not left or not right:
        return described("elementwise", dtype, n=max(size, 1), operands=1)
    if name in {"vdot", "vecdot"} or (len(left) == len(right) == 1):
        return _sums(left[-1] if name != "vdot" else math.prod(left), size, dtype)
    if name == "inner":
        return matrices(math.prod(left[:-1]), math.prod(right[:-1]), left[-1], dtype)
    if name == "dot":
        columns = math.prod(right[:-2]) * right[-1] if len(right) > 1 else 1
        return matrices(math.prod(left[:-1]), columns, left[-1], dtype)
    if name in {"matvec", "vecmat"}:
        rows, columns = (left[-2], left[-1]) if name == "matvec" else (right[-1], right[-2])
        return matrices(rows, 1, columns, dtype, size // rows if rows else 0)
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    return matrices(rows, columns, left[-1], dtype, size // (rows * columns) if rows * columns else 0)


def matrices(m: int, n: int, k: int, dtype: np.dtype[Any], count: int = 1) -> Described | None:
    """Describe `count` products of m x k and k x n, or of vectors if a side is 1."""
    if 0 in {m, n, k, count}:
        return None
    prefix = "complex-" if dtype.kind == "c" else ""
    if m == n == 1:
        return _sums(k, count, dtype)
    if 1 in {m, n}:
        return described(f"{prefix}gemv", dtype, count, m=m * n, n=k)
    return described(f"{prefix}gemm", dtype, count, m=m, n=n, k=k)


def _sums(n: int, count: int, dtype: np.dtype[Any]) -> Described | None:
    prefix = "complex-" if dtype.kind == "c" else ""
    return described(f"{prefix}dot", dtype, count, n=n) if n and count else None


def tensordot(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a tensor product: a matrix product after moving axes."""
    left, right, size = np.size(args[0]), np.size(args[1]), np.size(result)
    if 0 in {left, right, size}:
        return None
    summed = math.isqrt(max(left * right // size, 1))
    return matrices(left // summed, right // summed, summed, np.result_type(args[0], args[1]))


def einsum(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe an einsum of two operands; None for others."""
    if len(args) != 3 or not isinstance(args[0], str) or "." in args[0]:
        return None
    text = args[0].replace(" ", "")
    into, _arrow, out = text.partition("->")
    left, _comma, right = into.partition(",")
    if not _arrow:
        out = "".join(sorted(letter for letter in set(left + right) if (left + right).count(letter) == 1))
    shapes = np.shape(args[1]), np.shape(args[2])
    if len(left) != len(shapes[0]) or len(right) != len(shapes[1]):
        return None
    size = dict(zip(left, shapes[0], strict=True)) | dict(zip(right, shapes[1], strict=True))

    def extent(letters: set[str]) -> int:
        return math.prod(size[letter] for letter in letters)

    of_left, of_right, kept = set(left), set(right), set(out)
    summed = (of_left | of_right) - kept
    rows, columns = extent((of_left - of_right) & kept), extent((of_right - of_left) & kept)
    dtype = np.result_type(args[1], args[2])
    if not summed:
        return described("elementwise", dtype, n=max(np.size(result), 1), operands=2)
    return matrices(rows, columns, extent(summed), dtype, extent(of_left & of_right & kept))
