"""How alike two operators are, 0 to 1: by kind, number format, sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from controller.cluster.operators.values import Operator
from dataplane.topology.values import NumberFormat

_KIND, _FORMAT, _SIZES = 0.6, 0.2, 0.2
"""What equal kinds, formats and sizes contribute."""
_HALF_AT_DOUBLINGS: Final = 8.0
"""Sizes that differ by so many doublings count half."""


@dataclass(frozen=True, slots=True)
class Similarity:
    """How alike two operators are, and its parts; each is 1 for the same and 0 for nothing in common."""

    value: float
    kind: float
    number_format: float
    sizes: float


def similarity(one: Operator, other: Operator) -> Similarity:
    """Return how alike two operators are: symmetric, 1 for the same, whatever they are called."""
    kind = 1.0 if one.kind == other.kind else 0.0
    number_format = _format_similarity(one.number_format, other.number_format)
    sizes = _size_similarity(dict(one.shape), dict(other.shape))
    return Similarity(kind * (_KIND + _FORMAT * number_format + _SIZES * sizes), kind, number_format, sizes)


def _format_similarity(one: NumberFormat | None, other: NumberFormat | None) -> float:
    if one is other:
        return 1.0
    if one is None or other is None:
        return 0.0
    return 0.5 if _is_integer(one) == _is_integer(other) else 0.0


def _is_integer(number_format: NumberFormat) -> bool:
    return number_format.value.startswith("int")


def _size_similarity(one: dict[str, int], other: dict[str, int]) -> float:
    if not one and not other:
        return 1.0
    parts = [
        1 / (1 + abs(math.log2(max(one[name], 1)) - math.log2(max(other[name], 1))) / _HALF_AT_DOUBLINGS)
        if name in one and name in other
        else 0.0
        for name in sorted(one.keys() | other.keys())
    ]
    return sum(parts) / len(parts)
