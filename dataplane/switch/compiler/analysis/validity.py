"""Derives header validity from conditions, where they hold and where not: valid headers were extracted or cleared."""

from __future__ import annotations

from collections.abc import Mapping

from dataplane.program.model import VALID
from dataplane.program.operations import (
    Binary,
    BinaryOp,
    FieldRef,
    HeaderRef,
    HeadersEqual,
    Unary,
    UnaryOp,
)

_SAME_TRUTH = {UnaryOp.DATA_TO_BOOL, UnaryOp.BOOL_TO_DATA}


def valid_where(condition: object, holds: bool, bits: Mapping[str, int]) -> int:
    """Return the bits of all headers that are valid wherever a condition holds, or does not hold."""
    match condition:
        case Unary(UnaryOp.VALID, HeaderRef(name)):
            return bits.get(name, 0) if holds else 0
        case FieldRef(name, field) if field == VALID:
            return bits.get(name, 0) if holds else 0
        case Unary(UnaryOp.NOT, operand):
            return valid_where(operand, not holds, bits)
        case Unary(op, operand) if op in _SAME_TRUTH:
            return valid_where(operand, holds, bits)
        case HeadersEqual(HeaderRef(one), HeaderRef(other), negated):
            return 0 if holds is negated else bits.get(one, 0) | bits.get(other, 0)
        case Binary(BinaryOp.LOGICAL_AND | BinaryOp.LOGICAL_OR as op, left, right):
            first, second = valid_where(left, holds, bits), valid_where(right, holds, bits)
            if holds is (op is BinaryOp.LOGICAL_AND):
                return first | second
            return first & (valid_where(left, not holds, bits) | second)
    return 0
