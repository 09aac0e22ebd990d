"""Kubernetes' quantities: `100m`, `1.5`, `2Gi`, `5e3`, computed exactly and rounded up to the counting unit.

k8s.io/apimachinery/pkg/api/resource: a signed decimal, then a binary suffix (Ki), a decimal one (k, m) or an exponent.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

_BINARY: Final = {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {letter: Fraction(1000**power) for power, letter in enumerate(("", "k", *"MGTPE"))}
_SMALL: Final = {letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)}
_UNITS: Final = {**_BINARY, **_DECIMAL, **_SMALL}
_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))"
    r"(?:(?P<unit>[KMGTPE]i|[kMGTPEmun])|[eE](?P<exponent>[+-]?\d{1,2}))?",
    re.ASCII,
)
_MOST: Final = 1 << 62
"""Maximum value of the node columns; Kubernetes' own quantities end at 2^63."""


def whole(quantity: str | float) -> int:
    """Return a quantity rounded up to a whole number: bytes, devices; raise ValueError."""
    return _counted(str(quantity), 1)


def milli(quantity: str | float) -> int:
    """Return a quantity in thousandths, rounded up: of cores; raise ValueError."""
    return _counted(str(quantity), 1000)


@lru_cache(maxsize=16384)
def _counted(text: str, times: int) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text[:60]!r} is not a quantity")
    # A float could not represent 0.1 exactly.
    value = Fraction(match["number"])
    if match["exponent"] is not None:
        value *= Fraction(10) ** int(match["exponent"])
    value *= _UNITS[match["unit"] or ""] * times
    if value < 0:
        raise ValueError(f"{text[:60]!r} is negative")
    return min(math.ceil(value), _MOST)
