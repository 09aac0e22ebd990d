"""The probe kernels that come with Millrace: what each stands for, its sizes by default, and its code by device.

Sizes by default run in tens of milliseconds on a core; those of memory are beyond the caches of nearly all processors.
A change of what a kernel computes is a new version of it: results name the version that they were measured with.
"""

from __future__ import annotations

from typing import Final

from controller.schedulers.probe.values import Implementation, Library, ProbeKernel, sizes_of
from dataplane.topology.values import DeviceKind, NumberFormat

_HERE: Final = "controller.schedulers.probe.kernels"


def _cpu(library: Library, entry: str, *, threads: bool = False) -> Implementation:
    return Implementation(DeviceKind.CPU, library, f"{_HERE}.{entry}", threads)


_PRODUCT: Final = "sampled entries in higher precision, and the product with a random vector (Freivalds)"
_CUBE: Final = sizes_of({"m": 1024, "n": 1024, "k": 1024})

BUILT_IN: Final[tuple[ProbeKernel, ...]] = (
    ProbeKernel(
        "dgemm",
        1,
        "hpc",
        "gemm",
        NumberFormat.FP64,
        _CUBE,
        (_cpu(Library.NUMPY, "dense:dgemm", threads=True),),
        tolerance=1e-12,
        truth=_PRODUCT,
    ),
    ProbeKernel(
        "sgemm",
        1,
        "hpc",
        "gemm",
        NumberFormat.FP32,
        _CUBE,
        (_cpu(Library.NUMPY, "dense:sgemm", threads=True),),
        tolerance=1e-4,
        truth=_PRODUCT,
    ),
    ProbeKernel(
        "fft",
        1,
        "hpc",
        "fft",
        NumberFormat.FP64,
        sizes_of({"n": 1 << 20, "batch": 1}),
        (_cpu(Library.NUMPY, "fourier:fft"), _cpu(Library.SCIPY, "fourier:fft_scipy")),
        tolerance=1e-12,
        splits="n",
        truth="lines of known waves; of other signals sampled frequencies and Parseval's energy",
    ),
    ProbeKernel(
        "stream-triad",
        1,
        "memory",
        "stream-triad",
        NumberFormat.FP64,
        sizes_of({"n": 1 << 24}),
        (_cpu(Library.NUMPY, "memory:stream_triad"),),
        tolerance=1e-14,
        splits="n",
        truth="sampled sums in higher precision, and the sum of all",
    ),
)
