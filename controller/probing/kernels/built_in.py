"""The probe kernels that come with Millrace: what each stands for, its default sizes, and its code by device.

Default sizes run in some tens of milliseconds on a core; those of memory kernels exceed the caches of nearly all
processors. Changing what a kernel computes makes a new version: results name the version they were measured with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.probing.values import Implementation, Library, ProbeKernel, sizes_of
from dataplane.topology.values import DeviceKind, NumberFormat

_HERE: Final = "controller.probing.kernels"
_F32, _F64 = NumberFormat.FP32, NumberFormat.FP64


def _cpu(library: Library, entry: str, *, threads: bool = False) -> Implementation:
    return Implementation(DeviceKind.CPU, library, f"{_HERE}.{entry}", threads)


def _torch(name: str) -> tuple[Implementation, ...]:
    """Return implementations by torch, on processors and on GPUs."""
    gpu = Implementation(DeviceKind.GPU, Library.TORCH, f"{_HERE}.on_torch:{name}_cuda", threads=True)
    return _cpu(Library.TORCH, f"on_torch:{name}_cpu", threads=True), gpu


def _numpy(entry: str, *, threads: bool = False) -> tuple[Implementation, ...]:
    return (_cpu(Library.NUMPY, entry, threads=threads),)


def _both(entry: str, on_torch: str, *, threads: bool = False) -> tuple[Implementation, ...]:
    """Return implementations by numpy, and by torch."""
    return (*_numpy(entry, threads=threads), *_torch(on_torch))


def _tables(name: str) -> tuple[Implementation, ...]:
    """Return implementations by numpy, and by DuckDB for targets in SQL."""
    return (_cpu(Library.NUMPY, f"tables:{name}"), _cpu(Library.DUCKDB, f"duckdb_tables:{name}", threads=True))


def _kernel(  # noqa: PLR0917 - a row of the table
    identifier: str,
    category: str,
    operator: str,
    number_format: NumberFormat | None,
    sizes: Mapping[str, int],
    implementations: tuple[Implementation, ...],
    tolerance: float,
    truth: str,
    *,
    splits: str = "",
) -> ProbeKernel:
    return ProbeKernel(
        identifier,
        1,
        category,
        operator,
        number_format,
        sizes_of(sizes),
        implementations,
        tolerance,
        splits=splits,
        truth=truth,
    )


_PRODUCT: Final = "sampled entries in higher precision, and the product with a random vector (Freivalds)"
_SUM: Final = "the sum in higher precision"
_SAMPLED: Final = "sampled places in higher precision"
_CLOSED: Final = "counts and sums of rows, in closed form"
_CUBE: Final = {"m": 1024, "n": 1024, "k": 1024}
_IMAGES: Final = {
    "batch": 16,
    "in_channels": 32,
    "in_height": 56,
    "in_width": 56,
    "out_channels": 32,
    "out_height": 56,
    "out_width": 56,
    "kernel_height": 3,
    "kernel_width": 3,
    "groups": 1,
}
_JOINED: Final = {
    "left_rows": 1 << 20,
    "left_row_bytes": 16,
    "right_rows": 1 << 17,
    "right_row_bytes": 16,
    "out_rows": 1 << 20,
    "out_row_bytes": 24,
}

_DENSE: Final = (
    _kernel("dgemm", "hpc", "gemm", _F64, _CUBE, _both("dense:dgemm", "dgemm", threads=True), 1e-12, _PRODUCT),
    _kernel("sgemm", "hpc", "gemm", _F32, _CUBE, _both("dense:sgemm", "sgemm", threads=True), 1e-4, _PRODUCT),
    _kernel(
        "dgemv",
        "hpc",
        "gemv",
        _F64,
        {"m": 2048, "n": 2048},
        _both("dense:dgemv", "dgemv", threads=True),
        1e-12,
        "sampled entries in higher precision, and the sum of all",
    ),
    _kernel("dot", "hpc", "dot", _F64, {"n": 1 << 20}, _both("dense:ddot", "dot", threads=True), 1e-12, _SUM),
    _kernel(
        "dense-solve",
        "hpc",
        "solve",
        _F64,
        {"n": 1024, "columns": 1},
        _both("factorisations:solve", "solve", threads=True),
        1e-11,
        "a system whose solution is known; of others the residual",
    ),
    _kernel(
        "lu",
        "hpc",
        "factorise",
        _F64,
        {"n": 1024},
        (_cpu(Library.SCIPY, "factorisations:lu", threads=True),),
        1e-11,
        "the factors' product with a random vector against the matrix's",
    ),
    _kernel(
        "cholesky",
        "hpc",
        "cholesky",
        _F64,
        {"n": 1024},
        _both("factorisations:cholesky", "cholesky", threads=True),
        1e-11,
        "the factors' product with a random vector against the matrix's",
    ),
    _kernel(
        "qr",
        "hpc",
        "qr",
        _F64,
        {"m": 1024, "n": 512},
        _numpy("factorisations:qr", threads=True),
        1e-11,
        "R'R v against A'A v, v a random vector",
    ),
)

_TRANSFORMS: Final = (
    _kernel(
        "fft",
        "hpc",
        "fft",
        _F64,
        {"n": 1 << 20, "batch": 1},
        (_cpu(Library.NUMPY, "fourier:fft"), _cpu(Library.SCIPY, "fourier:fft_scipy"), *_torch("fft")),
        1e-12,
        "the lines of known waves; of other signals sampled frequencies; the energy (Parseval)",
        splits="batch",
    ),
    _kernel(
        "spmv",
        "hpc",
        "spmv",
        _F64,
        {"rows": 1 << 19, "columns": 1 << 19, "nonzeros": 5 << 19},
        (_cpu(Library.SCIPY, "dense:spmv"), *_torch("spmv")),
        1e-12,
        "sampled rows in higher precision, and the sum of all",
        splits="rows nonzeros",
    ),
    _kernel(
        "stencil",
        "hpc",
        "stencil",
        _F64,
        {"rows": 2048, "columns": 2048, "planes": 1, "neighbours": 0},
        _both("grids:stencil", "stencil"),
        1e-12,
        "sampled points in higher precision, and the sum of all",
        splits="rows",
    ),
    _kernel(
        "conv2d",
        "ai",
        "conv2d",
        _F32,
        _IMAGES,
        (*_torch("conv2d"), *_numpy("convolution:conv2d", threads=True)),
        2e-3,
        "sampled points in higher precision, and the sum of all",
        splits="batch",
    ),
)

_NUMBERS: Final = (
    _kernel(
        "trigonometric",
        "hpc",
        "trigonometric",
        _F64,
        {"n": 1 << 20},
        _both("pointwise:trigonometric", "trigonometric"),
        1e-14,
        _SAMPLED,
        splits="n",
    ),
    _kernel(
        "trigonometric-fp32",
        "ai",
        "trigonometric",
        _F32,
        {"n": 1 << 22},
        _both("pointwise:trigonometric_fp32", "trigonometric_fp32"),
        1e-6,
        _SAMPLED,
        splits="n",
    ),
    _kernel(
        "elementwise",
        "hpc",
        "elementwise",
        _F64,
        {"n": 1 << 22, "operands": 2},
        _both("pointwise:elementwise", "elementwise"),
        1e-14,
        _SAMPLED,
        splits="n",
    ),
    _kernel(
        "elementwise-fp32",
        "ai",
        "elementwise",
        _F32,
        {"n": 1 << 22, "operands": 2},
        _both("pointwise:elementwise_fp32", "elementwise_fp32"),
        1e-6,
        _SAMPLED,
        splits="n",
    ),
    _kernel(
        "reduction",
        "hpc",
        "reduction",
        _F64,
        {"n": 1 << 23},
        _both("pointwise:reduction", "reduction"),
        1e-12,
        _SUM,
        splits="n",
    ),
    _kernel(
        "reduction-fp32",
        "ai",
        "reduction",
        _F32,
        {"n": 1 << 23},
        _both("pointwise:reduction_fp32", "reduction_fp32"),
        1e-4,
        _SUM,
        splits="n",
    ),
    _kernel(
        "scan",
        "hpc",
        "scan",
        _F64,
        {"n": 1 << 22},
        _both("pointwise:scan", "scan"),
        1e-12,
        _SUM,
        splits="n",
    ),
    _kernel(
        "copy",
        "memory",
        "copy",
        _F64,
        {"n": 1 << 22},
        _both("pointwise:copy", "copy"),
        0.0,
        _SAMPLED,
        splits="n",
    ),
    _kernel(
        "random-numbers",
        "hpc",
        "random-numbers",
        _F64,
        {"n": 1 << 22},
        _numpy("pointwise:random_numbers"),
        1e-12,
        "the generator's first numbers, and mean and variance",
        splits="n",
    ),
)

_MEMORY: Final = (
    _kernel(
        "stream-triad",
        "memory",
        "stream-triad",
        _F64,
        {"n": 1 << 24},
        _both("memory:stream_triad", "stream_triad"),
        1e-12,
        "sampled sums in higher precision, and the sum of all",
        splits="n",
    ),
    _kernel(
        "random-access",
        "memory",
        "random-access",
        None,
        {"words": 1 << 25, "updates": 1 << 20},
        _numpy("memory:random_access"),
        0.0,
        "sampled words of a table that began as 0, 1, 2, ...",
        splits="updates",
    ),
)

_TABLES: Final = (
    _kernel(
        "sort",
        "sql",
        "sort",
        None,
        {"rows": 1 << 20, "row_bytes": 8},
        _tables("sort"),
        0.0,
        "order, and sums that rows keep",
        splits="rows",
    ),
    _kernel(
        "filter-scan",
        "sql",
        "filter",
        None,
        {"rows": 1 << 21, "row_bytes": 32, "kept_rows": 1 << 18},
        _tables("filter_scan"),
        0.0,
        _CLOSED,
        splits="rows kept_rows",
    ),
    _kernel("hash-join", "sql", "join", None, _JOINED, _tables("hash_join"), 0.0, _CLOSED, splits="left_rows out_rows"),
    _kernel(
        "aggregate",
        "sql",
        "aggregate",
        None,
        {"rows": 1 << 21, "row_bytes": 16, "groups": 1024, "group_bytes": 16},
        _tables("aggregate"),
        1e-12,
        _CLOSED,
        splits="rows",
    ),
)

_BYTES: Final = (
    _kernel(
        "small-files",
        "io",
        "small-files",
        None,
        {"files": 256, "file_bytes": 4096},
        (_cpu(Library.PYTHON, "transfers.disk:small_files"),),
        0.0,
        "checksums of what was written",
        splits="files",
    ),
    _kernel(
        "bulk-io",
        "io",
        "bulk-io",
        None,
        {"nbytes": 256 << 20},
        (_cpu(Library.PYTHON, "transfers.disk:bulk_io"),),
        0.0,
        "checksums of what was written, at the ends of each block",
        splits="nbytes",
    ),
    _kernel(
        "network-pull",
        "network",
        "network-pull",
        None,
        {"nbytes": 64 << 20, "streams": 1},
        (_cpu(Library.PYTHON, "transfers.network:network_pull"),),
        0.0,
        "checksums of what was asked for, at the ends of each block",
        splits="nbytes",
    ),
)

BUILT_IN: Final[tuple[ProbeKernel, ...]] = (*_DENSE, *_TRANSFORMS, *_NUMBERS, *_MEMORY, *_TABLES, *_BYTES)
