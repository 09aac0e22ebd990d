"""Number formats of arrays, and operators on them."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np

from controller.cluster.operators.tracing.values import Described
from dataplane.topology.values import NumberFormat

_BY_CODE: Final = {
    "b1": NumberFormat.INT8,
    **{f"{sign}{width}": NumberFormat(f"int{8 * width}") for sign in "iu" for width in (1, 2, 4, 8)},
    "f2": NumberFormat.FP16,
    "f4": NumberFormat.FP32,
    "f8": NumberFormat.FP64,
    "c8": NumberFormat.FP32,
    "c16": NumberFormat.FP64,
    "M8": NumberFormat.INT64,
    "m8": NumberFormat.INT64,
}


def format_of(dtype: np.dtype[Any]) -> NumberFormat | None:
    """Return the number format of a type in memory, None for strings, objects, and widths without a format.

    Complex numbers count as two numbers of their parts' format; booleans are bytes.
    """
    return _BY_CODE.get(f"{dtype.kind}{dtype.itemsize}")


def word(name: str) -> str:
    """Return a name as a valid operator kind: a-z, 0-9, - and _."""
    cleaned = re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-_")
    return cleaned[:64] if cleaned[:1].isalpha() else f"x-{cleaned}"[:64]


def described(kind: str, dtype: np.dtype[Any], count: int = 1, **sizes: int) -> Described:
    """Return an operator on numbers of a type; if the type has no number format, the kind's name includes it."""
    number_format = format_of(dtype)
    shape = tuple(sorted(sizes.items()))
    if number_format is None:
        return Described(word(f"{dtype.name}-{kind}"), shape, None, count)
    return Described(kind, shape, number_format, count)


def numbers(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the number of real numbers in an array."""
    count = 2 if dtype.kind == "c" else 1
    for size in shape:
        count *= size
    return count
