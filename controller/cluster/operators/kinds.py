"""Known kinds of operators: the sizes that they have, and how much work they are, where that is well defined.

Bytes are the compulsory ones: each operand read once and each result written once, as if caches held all else. Counts
of operations follow the source that each kind names; where a count depends on the algorithm it is said to be nominal,
or a lower bound, or there is none.
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
    known: int("".join(filter(str.isdecimal, known.value))) if known is not NumberFormat.TF32 else 32
    for known in NumberFormat
}
"""As they lie in memory: TF32 numbers do in 32 bits."""

KINDS: Final[Mapping[str, Kind]] = ALL
"""Kinds by name; an operator of another one is allowed, and its work is not known."""


def work_of(operator: Operator) -> Work | None:
    """Return what one execution of an operator takes, None for a kind that is not known.

    Raises OperatorError for sizes that its kind lacks or does not have, and for numbers without a format.
    """
    if (kind := KINDS.get(operator.kind)) is None:
        return None
    sizes = _sizes(operator, kind)
    if operator.number_format is None and not kind.of_bytes:
        raise OperatorError(f"{operator.name}: {operator.kind} of numbers without a format", at="format")
    width = 0.0 if operator.number_format is None else _BITS[operator.number_format] / 8
    read, written = kind.traffic(sizes, width)
    operations = None if kind.operations is None else kind.operations(sizes)
    return Work(operations, _unit(operator, kind), kind.counting, math.ceil(read), math.ceil(written))


@lru_cache(maxsize=256)
def _needed(kind: str) -> frozenset[str] | None:
    """Return the sizes of a kind that has these and no others, None for one whose shape may leave some out."""
    return None if KINDS[kind].optional else frozenset(KINDS[kind].sizes)


def _unit(operator: Operator, kind: Kind) -> str:
    """Return what is counted: what is a floating-point operation else is an integer one on integers."""
    is_integer = operator.number_format is not None and operator.number_format.value.startswith("int")
    return "op" if is_integer and kind.unit == "flop" else kind.unit


def _sizes(operator: Operator, kind: Kind) -> Sizes:
    given = dict(operator.shape)
    if given.keys() == _needed(operator.kind):
        return given
    if lacking := [name for name in kind.sizes if name not in given]:
        raise OperatorError(f"{operator.name}: {operator.kind} without {', '.join(lacking)}", at="shape")
    optional = dict(kind.optional)
    if strange := sorted(given.keys() - {*kind.sizes, *optional}):
        known = ", ".join((*kind.sizes, *optional))
        raise OperatorError(
            f"{operator.name}: {operator.kind} has no {strange[0]}, only {known}", at=f"shape.{strange[0]}"
        )
    sizes = optional | given
    groups = sizes.get("groups", 1)
    if operator.kind == "conv2d" and (groups < 1 or sizes["in_channels"] % groups or sizes["out_channels"] % groups):
        raise OperatorError(f"{operator.name}: channels cannot be divided into {groups} groups", at="shape.groups")
    return sizes
