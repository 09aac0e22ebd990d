"""Computes the range of an expression's values, so that exact arithmetic uses no more bits than necessary.

bmv2 computes with integers of any size; an interval for each node of an expression gives the width that its machine
integer needs. Bounds stop at `LIMIT`: a node that reaches it has no exact machine integer, but may have its lowest
bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataplane.program.model import FieldSpec, Program
from dataplane.program.operations import (
    ArgumentRef,
    Binary,
    BinaryOp,
    Choice,
    Constant,
    ElementFieldRef,
    Expression,
    FieldRef,
    HeadersEqual,
    LastFieldRef,
    LValue,
    Truth,
    Unary,
    UnaryOp,
)

MAX_BITS = 4096
"""Expressions that need wider integers are refused."""

MAX_SHIFT = 1 << 17
"""Larger shifts are clamped to this, as in the interpreter."""

LIMIT = 1 << (2 * MAX_BITS)

_WORD = 64


@dataclass(frozen=True, slots=True)
class Range:
    """All integers from `low` to `high`, inclusive."""

    low: int
    high: int

    @property
    def signed(self) -> bool:
        """Return whether there are negative values, so that the machine integer is in two's complement."""
        return self.low < 0

    @property
    def bits(self) -> int:
        """Return how many bits every value fits in."""
        if self.low >= 0:
            return max(1, self.high.bit_length())
        return max((~self.low).bit_length(), max(self.high, 0).bit_length()) + 1

    @property
    def machine_bits(self) -> int:
        """Return the width of the machine integer that holds every value."""
        return machine_bits(self.bits)

    def within(self, width_bits: int) -> bool:
        """Return whether every value is an unsigned integer of that width."""
        return self.low >= 0 and self.high >> width_bits == 0

    def union(self, other: Range) -> Range:
        """Return the smallest range that contains both."""
        return Range(min(self.low, other.low), max(self.high, other.high))


BIT = Range(0, 1)


def machine_bits(bits: int) -> int:
    """Return the width of the machine integer for that many bits: 8, 16, 32, or words of 64."""
    for size in (8, 16, 32):
        if bits <= size:
            return size
    return (bits + _WORD - 1) // _WORD * _WORD


def unsigned(width_bits: int) -> Range:
    """Return the range of an unsigned field."""
    return Range(0, (1 << width_bits) - 1)


def signed(width_bits: int) -> Range:
    """Return the range of a signed field."""
    top = 1 << width_bits >> 1
    return Range(-top, (1 << width_bits) - 1 - top)


def is_truth(node: Expression) -> bool:
    """Return whether an expression yields a truth value."""
    match node:
        case Truth() | HeadersEqual():
            return True
        case Unary(op, _):
            return op in _TRUTH_UNARY
        case Binary(op, _, _):
            return op in _TRUTH_BINARY
        case Choice(_, left, _):
            return is_truth(left)
    return False


_TRUTH_UNARY = {UnaryOp.NOT, UnaryOp.VALID, UnaryOp.DATA_TO_BOOL}
_TRUTH_BINARY = {
    BinaryOp.EQ,
    BinaryOp.NE,
    BinaryOp.GT,
    BinaryOp.GE,
    BinaryOp.LT,
    BinaryOp.LE,
    BinaryOp.LOGICAL_AND,
    BinaryOp.LOGICAL_OR,
}


class Ranges:
    """The ranges of the expressions of one routine whose arguments have the widths `parameters` in bits."""

    def __init__(self, program: Program, parameters: tuple[int, ...] = ()) -> None:
        self._program, self._parameters = program, parameters
        self._known: dict[int, tuple[Expression, Range]] = {}  # by identity; keeping the node prevents reuse of its id

    def of(self, node: Expression) -> Range:
        """Return the range of an expression."""
        cached = self._known.get(id(node))
        if cached is None:
            interval = self._clip(self._find(node))
            self._known[id(node)] = cached = (node, interval)
        return cached[1]

    def _clip(self, interval: Range) -> Range:
        return Range(max(interval.low, -LIMIT), min(interval.high, LIMIT))

    def _find(self, node: Expression) -> Range:
        if is_truth(node):
            return BIT
        match node:
            case Constant(value):
                return Range(value, value)
            case FieldRef() | ElementFieldRef() | LastFieldRef():
                return self._field(node)
            case ArgumentRef(index):
                return unsigned(self._parameters[index])
            case Choice(_, left, right):
                return self.of(left).union(self.of(right))
            case Unary():
                return self._unary(node)
            case Binary():
                return self._binary(node)
        return BIT

    def spec(self, node: LValue) -> FieldSpec:
        """Return width and sign of a field."""
        match node:
            case FieldRef(header, _):
                pass
            case ElementFieldRef(element, _):
                header = self._program.rows(element.stack)[0][0]
            case LastFieldRef(stack, _, member):
                header = self._program.rows(stack)[0][member]
        spec = self._program.headers[header].type.field(node.field)
        assert spec is not None
        return spec

    def _field(self, node: LValue) -> Range:
        spec = self.spec(node)
        return signed(spec.width_bits) if spec.signed else unsigned(spec.width_bits)

    def _unary(self, node: Unary) -> Range:
        match node.op:
            case UnaryOp.LAST_STACK_INDEX:
                return unsigned(64)
            case UnaryOp.SIZE_STACK:
                return unsigned(32)
            case UnaryOp.COMPLEMENT:
                inner = self.of(_data(node.operand))
                return Range(~inner.high, ~inner.low)
        return BIT

    def _binary(self, node: Binary) -> Range:
        left = self.of(node.left)
        match node.op, node.right:
            case BinaryOp.TWO_COMP_MOD, Constant(width):
                whole = signed(width)
                return left if left.low >= whole.low and left.high <= whole.high else whole
            case BinaryOp.USAT_CAST, Constant(width):
                return _clamp(left, unsigned(width))
            case BinaryOp.SAT_CAST, Constant(width):
                return _clamp(left, signed(width))
        return _combine(node.op, left, self.of(node.right))


def _data(operand: object) -> Expression:
    assert isinstance(operand, Expression)
    return operand


def _clamp(inner: Range, bounds: Range) -> Range:
    low, high = (min(max(value, bounds.low), bounds.high) for value in (inner.low, inner.high))
    return Range(low, high)


def _combine(op: BinaryOp, left: Range, right: Range) -> Range:
    match op:
        case BinaryOp.ADD:
            return Range(left.low + right.low, left.high + right.high)
        case BinaryOp.SUB:
            return Range(left.low - right.high, left.high - right.low)
        case BinaryOp.MUL:
            corners = [number * other for number in (left.low, left.high) for other in (right.low, right.high)]
            return Range(min(corners), max(corners))
        case BinaryOp.DIV:
            return Range(0, max(0, left.high) // max(1, right.low))
        case BinaryOp.MOD:
            return Range(0, max(0, min(left.high, right.high - 1)))
        case BinaryOp.SHIFT_LEFT | BinaryOp.SHIFT_RIGHT:
            return _shift(op, left, right)
    return _bitwise(op, left, right)


def _shift(op: BinaryOp, left: Range, right: Range) -> Range:
    least, most = (min(max(amount, 0), MAX_SHIFT) for amount in (right.low, right.high))
    if op is BinaryOp.SHIFT_RIGHT:
        corners = [value >> amount for value in (left.low, left.high) for amount in (least, most)]
    else:
        corners = [_shift_left(value, amount) for value in (left.low, left.high) for amount in (least, most)]
    return Range(min(corners), max(corners))


def _shift_left(value: int, amount: int) -> int:
    if value and amount > 2 * MAX_BITS:
        return LIMIT if value > 0 else -LIMIT
    return value << amount


def _bitwise(op: BinaryOp, left: Range, right: Range) -> Range:
    negative = left.signed or right.signed
    if op is BinaryOp.AND and not (left.signed and right.signed):
        return Range(0, min(operand.high for operand in (left, right) if not operand.signed))
    bits = max(left.bits + (not left.signed and negative), right.bits + (not right.signed and negative))
    return signed(bits) if negative else unsigned(bits)
