"""Floats of 16 bits: widened, which is exact, and rounded back to the nearest, ties to even."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.formats import Floats

_NAN = 0x7FC0


def from_bfloat16(values: NDArray[np.uint16]) -> Floats:
    """Return the floats whose upper halves are given."""
    return (values.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_bfloat16(values: Floats) -> NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 values, infinite ones where they are out of range."""
    bits = values.view(np.uint32)
    rounded = (bits >> 16) + ((bits & 0xFFFF) + (bits >> 16 & 1) > 0x8000)
    return np.where(np.isnan(values), _NAN, rounded).astype(np.uint16)


def to_float16(values: Floats) -> NDArray[np.float16]:
    """Return the nearest float16 values, infinite ones where they are out of range."""
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float16)
