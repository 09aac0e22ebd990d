"""Descriptions of scipy's functions as operator kinds with sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing.describing.formats import described, numbers, word
from controller.cluster.operators.tracing.describing.products import product
from controller.cluster.operators.tracing.describing.transforms import LINALG, fourier, solving
from controller.cluster.operators.tracing.values import Described

Describe = Callable[[tuple[Any, ...], dict[str, Any], Any], Described | None]


def _other(name: str) -> Describe:
    """Return a function that describes calls without a known kind: a kind named after the function, and the size."""

    def describe(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
        arrays = [array for array in (*args, result) if isinstance(array, np.ndarray)]
        largest = max(arrays, key=lambda array: array.size, default=None)
        if largest is None or largest.size <= 1:
            return None
        return described(word(name), largest.dtype, n=numbers(largest.shape, largest.dtype))

    return describe


def linalg(name: str) -> Describe:
    """Return a function that describes calls of a function in scipy.linalg."""
    if name in {"lu_solve", "cho_solve"}:
        return _factored
    return LINALG.get(name) or _other(f"scipy-linalg-{name}")


def _factored(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a solution from factors: two triangular ones."""
    return solving("triangular-solve")((args[0][0], *args[1:]), kwargs, result) and _doubled(
        solving("triangular-solve")((args[0][0], *args[1:]), kwargs, result)
    )


def _doubled(work: Described | None) -> Described | None:
    return None if work is None else Described(work.kind, work.shape, work.number_format, 2 * work.count)


def fft(name: str) -> Describe | None:
    """Return a function that describes calls of a function in scipy.fft, None for those that compute nothing."""
    if name in {"set_workers", "get_workers", "set_global_backend", "register_backend", "next_fast_len"}:
        return None
    return lambda args, kwargs, result: fourier(name, args, kwargs, result)


def signal(name: str) -> Describe:
    """Return a function that describes calls of a function in scipy.signal."""
    if name in {"convolve2d", "correlate2d"}:
        return _planes
    if name in {"convolve", "correlate"}:
        return _convolved
    if name in {"fftconvolve", "oaconvolve"}:
        return _by_transforms
    return _other(f"scipy-signal-{name}")


def _planes(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    image, kernel = sorted((np.shape(args[0]), np.shape(args[1])), key=math.prod, reverse=True)
    if 0 in (*image, *kernel, *np.shape(result)):
        return None
    out = np.shape(result)
    sizes = {"in_height": image[0], "in_width": image[1], "out_height": out[0], "out_width": out[1]}
    sizes |= {"kernel_height": kernel[0], "kernel_width": kernel[1]}
    return described("conv2d", np.asarray(result).dtype, **sizes, batch=1, in_channels=1, out_channels=1)


def _convolved(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    sizes = sorted((np.size(args[0]), np.size(args[1])))
    return described("convolution", np.asarray(result).dtype, n=sizes[1], taps=sizes[0]) if sizes[0] else None


def _by_transforms(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a convolution by transforms: two forward and one back; real ones as half as many complex numbers."""
    n = np.size(args[0]) + np.size(args[1]) - 1
    dtype = np.asarray(result).dtype
    return described("fft", dtype, 3, n=max(n if dtype.kind == "c" else n // 2, 1), batch=1)


_SWEEPS: Final = frozenset({
    *("convolve", "correlate", "convolve1d", "correlate1d", "uniform_filter", "uniform_filter1d", "gaussian_filter"),
    *("gaussian_filter1d", "laplace", "gaussian_laplace", "gaussian_gradient_magnitude", "sobel", "prewitt"),
    *("generic_laplace", "median_filter", "minimum_filter", "maximum_filter", "percentile_filter", "rank_filter"),
    *("minimum_filter1d", "maximum_filter1d", "generic_filter", "generic_filter1d", "grey_erosion", "grey_dilation"),
})  # fmt: skip


def ndimage(name: str) -> Describe:
    """Return a function that describes calls of a function in scipy.ndimage."""
    if name not in _SWEEPS:
        return _other(f"scipy-ndimage-{name}")

    def describe(args: tuple[Any, ...], kwargs: dict[str, Any], _: Any) -> Described | None:  # noqa: ANN401
        grid = np.asarray(args[0])
        if grid.size == 0 or grid.ndim == 0:
            return None
        return stencil(grid.shape, grid.dtype, _neighbours(name, grid.ndim, args, kwargs))

    return describe


def stencil(shape: tuple[int, ...], dtype: np.dtype[Any], neighbours: int) -> Described:
    """Return a sweep over a grid: lines are one row, volumes are planes."""
    *planes, rows, columns = (1, *shape) if len(shape) == 1 else shape
    sizes = {"rows": rows, "columns": columns}
    if (plane_count := math.prod(planes)) > 1:
        sizes["planes"] = plane_count
    if neighbours != (7 if plane_count > 1 else 5):
        sizes["neighbours"] = neighbours
    return described("stencil", dtype, **sizes)


def _neighbours(name: str, ndim: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    extent = kwargs.get("weights", kwargs.get("size", args[1] if len(args) > 1 else None))
    if name.startswith(("convolve", "correlate")) and extent is not None:
        return max(np.size(extent), 1)
    if name in {"laplace", "generic_laplace"}:
        return 2 * ndim + 1
    if isinstance(extent, int) and "gaussian" not in name:
        # Mean filters work dimension by dimension, all others on the whole neighbourhood.
        return extent * ndim if name.startswith("uniform") else extent if name.endswith("1d") else extent**ndim
    return 3 * ndim if extent is None else max(2 * math.ceil(4 * float(np.max(extent))) + 1, 1) * ndim


def sparse_solving(args: tuple[Any, ...], _: dict[str, Any], __: Any) -> Described | None:  # noqa: ANN401
    """Describe a solution from sparse factors."""
    matrix = args[0]
    dtype = matrix.dtype if matrix.dtype.kind in "fc" else np.dtype(np.float64)
    return described("sparse-solve", dtype, rows=matrix.shape[0], nonzeros=max(matrix.nnz, 1))


def sparse_product(args: tuple[Any, ...], _: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
    """Describe a product with a sparse matrix on one side."""
    left, right = args[0], args[1]
    if result is NotImplemented:
        return None
    if hasattr(left, "nnz") and hasattr(right, "nnz"):
        if not left.nnz or not right.nnz:
            return None
        sizes = {"left_nonzeros": left.nnz, "right_nonzeros": right.nnz, "out_nonzeros": max(result.nnz, 1)}
        return described("spgemm", np.result_type(left.dtype, right.dtype), **sizes)
    matrix, dense = (left, right) if hasattr(left, "nnz") else (right, left)
    if np.ndim(dense) == 0:
        return described("elementwise", matrix.dtype, n=matrix.nnz, operands=1) if matrix.nnz else None
    if matrix.ndim != 2 or not matrix.nnz:
        return None
    dtype = np.result_type(matrix.dtype, np.asarray(dense).dtype)
    vectors = np.size(dense) // (matrix.shape[1] if matrix is left else matrix.shape[0])
    sizes = {"rows": matrix.shape[0], "columns": matrix.shape[1], "nonzeros": matrix.nnz}
    return described("spmv", dtype, **sizes) if vectors == 1 else described("spmm", dtype, **sizes, vectors=vectors)


def by_operator(name: str) -> Describe:
    """Return a function that describes `x @ A`, or `A * x`: a product for matrices, elementwise for arrays."""

    def describe(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Described | None:  # noqa: ANN401
        left, right = args[:2]
        if result is NotImplemented:
            return None
        if name in {"__mul__", "__rmul__"} and (np.ndim(right) == 0 or not _is_matrix(left)):
            return described("elementwise", left.dtype, n=left.nnz, operands=2) if left.nnz else None
        return sparse_product((right, left) if name.startswith("__r") else (left, right), kwargs, result)

    return describe


def _is_matrix(value: Any) -> bool:  # noqa: ANN401
    """Return whether `*` is the matrix product for this type."""
    return any(base.__name__ == "spmatrix" for base in type(value).__mro__)


def blas(name: str) -> Describe | None:
    """Return a function that describes calls of a BLAS routine, None for unknown ones."""
    if name[1:] in {"gemm", "gemv"}:
        return lambda args, _, result: product("matmul", args[1], args[2], result)
    if name[1:] in {"dot", "dotu", "dotc"}:
        return lambda args, _, result: product("vdot", args[0], args[1], result)
    if name[1:] == "axpy":
        return lambda _, __, result: described("axpy", result.dtype, n=max(np.size(result), 1))
    return None
