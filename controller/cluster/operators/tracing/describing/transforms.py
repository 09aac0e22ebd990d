"""Fourier transforms and dense linear algebra of numpy and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing.describing.formats import described
from controller.cluster.operators.tracing.describing.products import matrices
from controller.cluster.operators.tracing.values import Described

Describe = Callable[[tuple[Any, ...], dict[str, Any], Any], Described | None]


def fourier(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a transform; a real one counts as half as many complex numbers, one over planes as all points."""
    if name.endswith(("freq", "shift", "fast_len")) or not isinstance(result, np.ndarray) or result.size == 0:
        return None
    array = np.asarray(args[0])
    is_real = name.startswith(("r", "ir", "h", "ih", "d", "id"))
    # The longer of both sides: a real transform's other side has half as many numbers, plus one.
    shape = array.shape if array.size >= result.size else result.shape
    axes = _axes(name, args, kwargs, len(shape))
    points = math.prod(shape[axis] for axis in axes)
    batch = math.prod(shape) // points if points else 0
    if not batch:
        return None
    n = max(points // 2, 1) if is_real else points
    return described("fft", np.result_type(array.dtype, np.complex64), n=n, batch=batch)


def _axes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], ndim: int) -> tuple[int, ...]:
    if name.endswith("2"):
        axes = kwargs.get("axes", args[2] if len(args) > 2 else (-2, -1))
    elif name.endswith("n"):
        axes = kwargs.get("axes", args[2] if len(args) > 2 else None)
    else:
        axes = (kwargs.get("axis", args[2] if len(args) > 2 and isinstance(args[2], int) else -1),)
    if axes is None:
        return tuple(range(ndim))
    return tuple(axis % ndim for axis in ((axes,) if isinstance(axes, int) else axes))


def _matrix(args: tuple[Any, ...]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the shape of the first operand's matrices, their type, and their number."""
    array = np.asarray(args[0])
    count = math.prod(array.shape[:-2])
    dtype = array.dtype if array.dtype.kind in "fc" else np.dtype(np.float64)
    return array.shape[-2:], dtype, count


def _dense(kind: str, dtype: np.dtype[Any], count: int, **sizes: int) -> Described | None:
    if count == 0 or 0 in sizes.values():
        return None
    return described(f"complex-{kind}" if dtype.kind == "c" else kind, dtype, count, **sizes)


def _square(kind: str) -> Describe:
    def describe(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
        shape, dtype, count = _matrix(args)
        return _dense(kind, dtype, count, n=shape[-1])

    return describe


def _rectangular(kind: str) -> Describe:
    def describe(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
        shape, dtype, count = _matrix(args)
        return _dense(kind, dtype, count, m=shape[0], n=shape[1])

    return describe


def solving(kind: str, *, right: int = 1) -> Describe:
    """Return a function that describes calls of a solver whose right-hand side is argument `right`."""

    def describe(args: tuple[Any, ...], kwargs: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
        shape, dtype, count = _matrix(args)
        side = np.shape(kwargs.get("b", args[right] if len(args) > right else 0))
        columns = side[-1] if len(side) > 1 else 1
        sizes = {"m": shape[0]} if kind == "least-squares" else {}
        return _dense(kind, dtype, count, n=shape[1], columns=columns, **sizes)

    return describe


def _power(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    shape, dtype, count = _matrix(args)
    exponent = abs(int(args[1]))
    products = max(exponent.bit_length() + exponent.bit_count() - 2, 0)
    return matrices(shape[0], shape[0], shape[0], dtype, count * products)


def _chain(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a chain of products as if all were as wide as the first."""
    shapes = [np.shape(matrix) for matrix in args[0]]
    if any(len(shape) != 2 for shape in shapes) or len(shapes) < 2:
        return None
    return matrices(shapes[0][0], np.shape(result)[-1], shapes[0][1], np.result_type(*args[0]), len(shapes) - 1)


def _norm(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    array = np.asarray(args[0])
    return described("reduction", array.dtype, n=array.size) if array.size else None


LINALG: Final[Mapping[str, Describe]] = {
    "solve": solving("solve"),
    "tensorsolve": solving("solve"),
    "lstsq": solving("least-squares"),
    "inv": _square("inverse"),
    "pinv": _rectangular("svd"),
    "cholesky": _square("cholesky"),
    "det": _square("factorise"),
    "slogdet": _square("factorise"),
    "qr": _rectangular("qr"),
    "svd": _rectangular("svd"),
    "svdvals": _rectangular("svd"),
    "cond": _rectangular("svd"),
    "matrix_rank": _rectangular("svd"),
    **{name: _square("eigen") for name in ("eig", "eigh", "eigvals", "eigvalsh", "schur")},
    "lu": _square("factorise"),
    "lu_factor": _square("factorise"),
    "cho_factor": _square("cholesky"),
    "cho_solve": solving("triangular-solve"),
    "lu_solve": solving("triangular-solve"),
    "solve_triangular": solving("triangular-solve"),
    "matrix_power": _power,
    "multi_dot": _chain,
    "norm": _norm,
}
"""Dense linear algebra by its name in numpy.linalg and scipy.linalg."""
