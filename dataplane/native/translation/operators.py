"""Arithmetic and comparison: exact on literals as in Python, wrapping on numbers of a width."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir

from dataplane.native.scalars import BOOL, Scalar
from dataplane.native.translation.values import Value, constant

EXACT: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
BITWISE: tuple[type[ast.operator], ...] = (ast.BitAnd, ast.BitOr, ast.BitXor)
SHIFTS: tuple[type[ast.operator], ...] = (ast.LShift, ast.RShift)
_PLAIN = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.BitAnd: "and_",
    ast.BitOr: "or_",
    ast.BitXor: "xor",
}


def compare(builder: Any, op: ast.cmpop, shape: Scalar, left: Any, right: Any) -> Value:  # noqa: ANN401
    """Return the truth of a comparison of two numbers of one shape."""
    emit = builder.icmp_signed if shape.signed else builder.icmp_unsigned
    return Value(BOOL, emit(COMPARISONS[type(op)], left, right))


def calculate(builder: Any, op: ast.operator, shape: Scalar, left: Any, right: Any) -> Value:  # noqa: ANN401
    """Return `left op right` of two numbers of one shape, wrapped to it."""
    kind = type(op)
    if kind in _PLAIN:
        return Value(shape, getattr(builder, _PLAIN[kind])(left, right))
    if isinstance(op, ast.LShift | ast.RShift):
        return Value(shape, _shift(builder, op, shape, left, right))
    return Value(shape, _divide(builder, op, shape, left, right))


def _shift(builder: Any, op: ast.operator, shape: Scalar, left: Any, right: Any) -> Any:  # noqa: ANN401
    """Shift as Python does: by the width or more leaves only the sign."""
    last = constant(shape, shape.bits - 1).ir
    arithmetic = shape.signed and isinstance(op, ast.RShift)
    emit = builder.shl if isinstance(op, ast.LShift) else builder.ashr if arithmetic else builder.lshr
    if isinstance(right, ir.Constant) and 0 <= right.constant < shape.bits:
        return emit(left, right)
    inside = builder.icmp_unsigned("<=", right, last)
    amount = builder.select(inside, right, last)
    shifted = emit(left, amount)
    return shifted if arithmetic else builder.select(inside, shifted, constant(shape, 0).ir)


def _divide(builder: Any, op: ast.operator, shape: Scalar, left: Any, right: Any) -> Any:  # noqa: ANN401
    """Divide; by zero the quotient is zero and the remainder is the dividend (as in BPF, RFC 9669), without a trap.

    Python raises an exception then, which machine code cannot: check a divisor that comes from a packet.
    """
    remainder = isinstance(op, ast.Mod)
    divide = _divide_signed if shape.signed else _divide_unsigned
    if isinstance(right, ir.Constant) and right.constant:
        return divide(builder, remainder, left, right)
    zero = left.type(0)
    is_zero = builder.icmp_unsigned("==", right, zero)
    result = divide(builder, remainder, left, builder.select(is_zero, left.type(1), right))
    return builder.select(is_zero, left if remainder else zero, result)


def _divide_unsigned(builder: Any, remainder: bool, left: Any, right: Any) -> Any:  # noqa: ANN401
    return (builder.urem if remainder else builder.udiv)(left, right)


def _divide_signed(builder: Any, remainder: bool, left: Any, right: Any) -> Any:  # noqa: ANN401
    """Divide towards minus infinity as Python does; by -1 it is negation, which wraps instead of trapping."""
    kind = left.type
    zero, minus_one = kind(0), kind(-1)
    negates = builder.icmp_signed("==", right, minus_one)
    divisor = builder.select(negates, kind(1), right)
    rest = builder.srem(left, divisor)
    other_sign = builder.icmp_signed("<", builder.xor(rest, divisor), zero)
    down = builder.and_(builder.icmp_signed("!=", rest, zero), other_sign)
    if remainder:
        return builder.select(down, builder.add(rest, divisor), rest)
    quotient = builder.sdiv(left, divisor)
    floored = builder.select(down, builder.sub(quotient, kind(1)), quotient)
    return builder.select(negates, builder.sub(zero, left), floored)


def cast(builder: Any, value: Value, shape: Scalar) -> Value:  # noqa: ANN401 - llvmlite is untyped
    """Convert a number to another width or sign: truncated, or widened by its own sign."""
    source = value.shape
    if not isinstance(source, Scalar):
        raise TypeError("only numbers are cast")
    kind = ir.IntType(shape.bits)
    if source.bits == shape.bits:
        return Value(shape, value.ir)
    if source.bits > shape.bits:
        return Value(shape, builder.trunc(value.ir, kind))
    return Value(shape, (builder.sext if source.signed else builder.zext)(value.ir, kind))
