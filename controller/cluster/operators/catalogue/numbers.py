"""Kinds that work on numbers: products, transforms, convolutions, elementwise functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from controller.cluster.operators.counting import Counting, Kind, Sizes

_INDEX_BYTES: Final = 4


def _conv2d_operations(s: Sizes) -> int:
    outputs = s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]
    return 2 * outputs * (s["in_channels"] // s["groups"]) * s["kernel_height"] * s["kernel_width"]


def _conv2d_traffic(s: Sizes, width: float) -> tuple[float, float]:
    inputs = s["batch"] * s["in_channels"] * s["in_height"] * s["in_width"]
    weights = s["out_channels"] * (s["in_channels"] // s["groups"]) * s["kernel_height"] * s["kernel_width"]
    outputs = s["batch"] * s["out_channels"] * s["out_height"] * s["out_width"]
    return (inputs + weights) * width, outputs * width


def _spmm_traffic(s: Sizes, width: float) -> tuple[float, float]:
    # Compressed rows need one start more than there are rows.
    matrix = s["nonzeros"] * (width + _INDEX_BYTES) + (s["rows"] + 1) * _INDEX_BYTES
    return matrix + s["columns"] * s["vectors"] * width, s["rows"] * s["vectors"] * width


def _spmv_traffic(s: Sizes, width: float) -> tuple[float, float]:
    """Compressed sparse rows with 32-bit indices."""
    # Compressed rows need one start more than there are rows.
    matrix = s["nonzeros"] * (width + _INDEX_BYTES) + (s["rows"] + 1) * _INDEX_BYTES
    return matrix + s["columns"] * width, s["rows"] * width


_BLAS: Final = "Blackford and Dongarra, LAPACK Working Note 41: a multiplication and an addition count as two"

NUMBERS: Final[Mapping[str, Kind]] = {
    "gemm": Kind(
        "C = A B, A of m x k, B of k x n: dgemm in fp64, sgemm in fp32",
        ("m", "n", "k"),
        lambda s: 2 * s["m"] * s["n"] * s["k"],
        lambda s, w: ((s["m"] * s["k"] + s["k"] * s["n"]) * w, s["m"] * s["n"] * w),
        _BLAS,
    ),
    "gemv": Kind(
        "y = A x, A of m x n",
        ("m", "n"),
        lambda s: 2 * s["m"] * s["n"],
        lambda s, w: ((s["m"] * s["n"] + s["n"]) * w, s["m"] * w),
        _BLAS,
    ),
    "axpy": Kind(
        "y = a x + y, of n numbers",
        ("n",),
        lambda s: 2 * s["n"],
        lambda s, w: (2 * s["n"] * w, s["n"] * w),
        _BLAS,
    ),
    "dot": Kind(
        "x'y, of n numbers each",
        ("n",),
        lambda s: 2 * s["n"],
        lambda s, w: (2 * s["n"] * w, w),
        _BLAS,
    ),
    "fft": Kind(
        "discrete Fourier transform of n complex numbers, `batch` times",
        ("n",),
        lambda s: round(5 * s["n"] * math.log2(s["n"])) * s["batch"] if s["n"] > 1 else 0,
        lambda s, w: (2 * s["n"] * s["batch"] * w, 2 * s["n"] * s["batch"] * w),
        "Frigo and Johnson, benchFFT: 5 n log2(n), whatever the algorithm",
        counting=Counting.NOMINAL,
        optional=(("batch", 1),),
    ),
    "spmv": Kind(
        "y = A x, A sparse with so many nonzeros",
        ("rows", "columns", "nonzeros"),
        lambda s: 2 * s["nonzeros"],
        _spmv_traffic,
        "Williams et al., Optimization of Sparse Matrix-Vector Multiplication, SC 2007: two per nonzero",
    ),
    "spmm": Kind(
        "Y = A X, A sparse with so many nonzeros, X dense with so many vectors",
        ("rows", "columns", "nonzeros", "vectors"),
        lambda s: 2 * s["nonzeros"] * s["vectors"],
        _spmm_traffic,
        "as spmv, for each vector",
    ),
    "spgemm": Kind(
        "C = A B, both sparse; operations depend on where the nonzeros lie",
        ("left_nonzeros", "right_nonzeros", "out_nonzeros"),
        None,
        lambda s, w: (
            (s["left_nonzeros"] + s["right_nonzeros"]) * (w + _INDEX_BYTES),
            s["out_nonzeros"] * (w + _INDEX_BYTES),
        ),
        "no count holds for all patterns",
    ),
    "sparse-solve": Kind(
        "x of A x = b by sparse factors; operations depend on the fill-in",
        ("rows", "nonzeros"),
        None,
        lambda s, w: (s["nonzeros"] * (w + _INDEX_BYTES) + s["rows"] * (w + _INDEX_BYTES), s["rows"] * w),
        "no count holds for all patterns",
    ),
    "convolution": Kind(
        "n numbers convolved with so many others, summed up directly, `batch` times",
        ("n", "taps"),
        lambda s: 2 * s["n"] * s["taps"] * s["batch"],
        lambda s, w: ((s["n"] + s["taps"]) * s["batch"] * w, s["n"] * s["batch"] * w),
        "direct: a multiplication and an addition count as two; transforms need fewer",
        counting=Counting.NOMINAL,
        optional=(("batch", 1),),
    ),
    "conv2d": Kind(
        "convolution of images with kernels, as in layers of networks, each output summed up directly",
        (
            *("batch", "in_channels", "in_height", "in_width"),
            *("out_channels", "out_height", "out_width", "kernel_height", "kernel_width"),
        ),
        _conv2d_operations,
        _conv2d_traffic,
        "Chetlur et al., cuDNN, 2014: direct; transforms (Winograd, FFT) need fewer",
        counting=Counting.NOMINAL,
        optional=(("groups", 1),),
    ),
    "trigonometric": Kind(
        "a function such as sine of each of n numbers",
        ("n",),
        lambda s: s["n"],
        lambda s, w: (s["n"] * w, s["n"] * w),
        "evaluations; the operations of each depend on the library",
        unit="evaluation",
    ),
}
