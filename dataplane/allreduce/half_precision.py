"""16-bit floats: widened, which is exact, and rounded to nearest, ties to even.

Plain, and in machine code (`widen`, `narrow`), which all-reduces use.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.formats import Floats
from dataplane.allreduce.kernels import half_precision as kernels
from dataplane.native import Library, kernel_library

_NAN = 0x7FC0


def from_bfloat16(values: NDArray[np.uint16]) -> Floats:
    """Return the floats with the given upper halves."""
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 values, infinities where out of range."""
    bits = values.view(np.uint32)
    rounded = (bits >> 16) + ((bits & 0xFFFF) + (bits >> 16 & 1) > 0x8000)
    return np.where(np.isnan(values), _NAN, rounded).astype(np.uint16)


def to_float16(values: Floats) -> NDArray[np.float16]:
    """Return the nearest float16 values, infinities where out of range."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float16)


def widen(values: NDArray[Any], wide: Floats) -> None:
    """Widen a contiguous float16 array, or the bits of bfloat16 in uint16, into one of float32."""
    kernel = kernels.from_float16 if values.dtype == np.float16 else kernels.from_bfloat16
    _library().bind(kernel)(values.ctypes.data, values.size, wide.ctypes.data)


def narrow(wide: Floats, values: NDArray[Any]) -> None:
    """Round to a contiguous array of float16, or of the bits of bfloat16 in uint16."""
    kernel = kernels.to_float16 if values.dtype == np.float16 else kernels.to_bfloat16
    _library().bind(kernel)(wide.ctypes.data, wide.size, values.ctypes.data)


@cache
def _library() -> Library:
    return kernel_library(kernels.from_bfloat16, kernels.to_bfloat16, kernels.from_float16, kernels.to_float16)
