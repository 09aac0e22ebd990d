"""Known operator kinds: their sizes, and their work where that is well defined.

Bytes are the compulsory ones: each operand read once and each result written once, as if caches held everything else.
Counts of operations follow the source that each kind names; a count that depends on the algorithm is marked as nominal,
or as a lower bound, or omitted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from controller.cluster.operators.catalogue import ALL
from controller.cluster.operators.counting import Counting, Kind, Sizes, Work
from controller.cluster.operators.errors import OperatorError
from controller.cluster.operators.values import Operator
from dataplane.topology.values import NumberFormat

__all__ = ["KINDS", "Counting", "Kind", "Work", "work_of"]

_BITS: Final = {
    number_format: int("".join(filter(str.isdecimal, number_format.value)))
    if number_format is not NumberFormat.TF32
    else 32
    for number_format in NumberFormat
}
"""Bits in memory: TF32 numbers take 32."""

KINDS: Final[Mapping[str, Kind]] = ALL
"""Kinds by name; other kinds of operators are allowed, and their work is unknown."""


def work_of(operator: Operator) -> Work | None:
    """Return the work of one execution of an operator, None for an unknown kind.

    Raises OperatorError for missing or unknown sizes, and for numbers without a format.
    """
    if (kind := KINDS.get(operator.kind)) is None:
        return None
    sizes = _sizes(operator, kind)
    if operator.number_format is None and not kind.of_bytes:
        raise OperatorError(f"{operator.name}: {operator.kind} needs a number format", at="format")
    width = 0.0 if operator.number_format is None else _BITS[operator.number_format] / 8
    read, written = kind.traffic(sizes, width)
    operations = None if kind.operations is None else kind.operations(sizes)
    return Work(operations, _unit(operator, kind), kind.counting, math.ceil(read), math.ceil(written))


@lru_cache(maxsize=256)
def _needed(kind: str) -> frozenset[str] | None:
    """Return the sizes of a kind if all are required, None if a shape may omit some."""
    return None if KINDS[kind].optional else frozenset(KINDS[kind].sizes)


def _unit(operator: Operator, kind: Kind) -> str:
    """Return the unit of the count: on integers, floating-point operations count as integer ones."""
    is_integer = operator.number_format is not None and operator.number_format.value.startswith("int")
    return "op" if is_integer and kind.unit == "flop" else kind.unit


def _sizes(operator: Operator, kind: Kind) -> Sizes:
    sizes_given = dict(operator.shape)
    if sizes_given.keys() == _needed(operator.kind):
        return sizes_given
    if lacking := [name for name in kind.sizes if name not in sizes_given]:
        raise OperatorError(f"{operator.name}: {operator.kind} without {', '.join(lacking)}", at="shape")
    optional = dict(kind.optional)
    if unknown := sorted(sizes_given.keys() - {*kind.sizes, *optional}):
        names = ", ".join((*kind.sizes, *optional))
        raise OperatorError(
            f"{operator.name}: {operator.kind} has no {unknown[0]}, only {names}", at=f"shape.{unknown[0]}"
        )
    sizes = optional | sizes_given
    groups = sizes.get("groups", 1)
    if operator.kind == "conv2d" and (groups < 1 or sizes["in_channels"] % groups or sizes["out_channels"] % groups):
        raise OperatorError(f"{operator.name}: channels cannot be divided into {groups} groups", at="shape.groups")
    return sizes
