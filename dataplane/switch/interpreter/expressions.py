"""Binds expressions: each becomes a closure (fields, arguments) -> integer; a truth value is 0 or not 0.

Arithmetic is exact, as in bmv2; the compiler has put the masks and casts that P4's widths require into the program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

from dataplane.program.operations import (
    AnyHeaderRef,
    ArgumentRef,
    Binary,
    BinaryOp,
    Choice,
    Constant,
    ElementFieldRef,
    ElementRef,
    Expression,
    FieldRef,
    HeaderRef,
    HeadersEqual,
    LastFieldRef,
    LValue,
    StackRef,
    Truth,
    Unary,
    UnaryOp,
)
from dataplane.switch.interpreter.layout import Fields, HeaderSlots, Layout, PacketFault, StackFault

Arguments: TypeAlias = Sequence[int]
Evaluate: TypeAlias = Callable[[Fields, Arguments], int]
Store: TypeAlias = Callable[[Fields, Arguments, int], None]
Locate: TypeAlias = Callable[[Fields, Arguments], HeaderSlots]

MAX_SHIFT = 1 << 17
"""Larger shifts are clamped to this: no field is wider, so a longer left shift would leave nothing to keep."""

_SIZE_T = (1 << 64) - 1

_PLAIN: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
    BinaryOp.AND: operator.and_,
    BinaryOp.XOR: operator.xor,
    BinaryOp.EQ: operator.eq,
    BinaryOp.NE: operator.ne,
    BinaryOp.GT: operator.gt,
    BinaryOp.GE: operator.ge,
    BinaryOp.LT: operator.lt,
    BinaryOp.LE: operator.le,
}


def bind(node: Expression, layout: Layout) -> Evaluate:
    """Return a closure that evaluates an expression."""
    match node:
        case Constant(value) | Truth(value):
            return lambda _fields, _arguments: value
        case FieldRef():
            slot = layout.slot(node)
            return lambda fields, _arguments: fields[slot]
        case ArgumentRef(index):
            return lambda _fields, arguments: arguments[index]
        case ElementFieldRef() | LastFieldRef():
            return _bind_element_field(node, layout)
        case Unary():
            return _bind_unary(node, layout)
        case Binary():
            return _bind_binary(node, layout)
        case HeadersEqual():
            return _bind_headers_equal(node, layout)
        case Choice():
            condition, left, right = (bind(part, layout) for part in (node.condition, node.left, node.right))
            return lambda fields, arguments: (left if condition(fields, arguments) else right)(fields, arguments)


def bind_header(ref: AnyHeaderRef, layout: Layout) -> Locate:
    """Return a closure that finds a header's slots; an index outside the stack is a StackFault."""
    if isinstance(ref, HeaderRef):
        slots = layout.headers[ref.name]
        return lambda _fields, _arguments: slots
    elements, index = layout.elements(ref.stack), bind(ref.index, layout)

    def locate(fields: Fields, arguments: Arguments) -> HeaderSlots:
        position = index(fields, arguments)
        if not 0 <= position < len(elements):
            raise StackFault
        return elements[position]

    return locate


def bind_store(target: LValue, layout: Layout) -> Store:
    """Return a closure that sets a field, truncated to its width."""
    if isinstance(target, FieldRef):
        return _store_at(layout, target)
    locate = _bind_slot(target, layout)
    cut = cutter(layout, _representative(target, layout))

    def store(fields: Fields, arguments: Arguments, value: int) -> None:
        fields[locate(fields, arguments)] = cut(value)

    return store


def sign_bit(width_bits: int) -> int:
    """Return the highest bit of a number, 0 for zero bits."""
    return 1 << width_bits >> 1


def cutter(layout: Layout, ref: FieldRef) -> Callable[[int], int]:
    """Return a closure that truncates a value to the width of a field, two's complement if it is signed."""
    spec = layout.spec(ref)
    mask, sign = (1 << spec.width_bits) - 1, sign_bit(spec.width_bits)
    if spec.signed:
        return lambda value: ((value & mask) ^ sign) - sign
    return lambda value: value & mask


def _store_at(layout: Layout, ref: FieldRef) -> Store:
    slot, spec = layout.slot(ref), layout.spec(ref)
    mask, sign = (1 << spec.width_bits) - 1, sign_bit(spec.width_bits)

    def store(fields: Fields, _arguments: Arguments, value: int) -> None:
        fields[slot] = value & mask

    def store_signed(fields: Fields, _arguments: Arguments, value: int) -> None:
        fields[slot] = ((value & mask) ^ sign) - sign

    return store_signed if spec.signed else store


def _representative(target: ElementFieldRef | LastFieldRef, layout: Layout) -> FieldRef:
    """Return the field of a stack's first element: all share its width and sign."""
    if isinstance(target, LastFieldRef):
        return FieldRef(layout.rows(target.stack)[0][target.member].header.name, target.field)
    return FieldRef(layout.elements(target.element.stack)[0].header.name, target.field)


def _bind_slot(target: ElementFieldRef | LastFieldRef, layout: Layout) -> Evaluate:
    """Return a closure that finds the slot of a field of a stack's element."""
    if isinstance(target, ElementFieldRef):
        locate = bind_header(target.element, layout)
        offset = _offset(target, layout)
        return lambda fields, arguments: locate(fields, arguments).base + offset
    bases = [row[target.member].slot(target.field) for row in layout.rows(target.stack)]
    following = layout.next_index[target.stack]

    def last(fields: Fields, _arguments: Arguments) -> int:
        position = fields[following]
        if position == 0:
            raise StackFault
        return bases[position - 1]

    return last


def _offset(target: ElementFieldRef, layout: Layout) -> int:
    first = layout.elements(target.element.stack)[0]
    return first.slot(target.field) - first.base


def _bind_element_field(node: ElementFieldRef | LastFieldRef, layout: Layout) -> Evaluate:
    locate = _bind_slot(node, layout)
    return lambda fields, arguments: fields[locate(fields, arguments)]


def _bind_unary(node: Unary, layout: Layout) -> Evaluate:
    operand = node.operand
    if isinstance(operand, StackRef):
        following = layout.next_index[operand.name]
        if node.op is UnaryOp.SIZE_STACK:
            return lambda fields, _arguments: fields[following]
        return lambda fields, _arguments: (fields[following] - 1) & _SIZE_T
    if isinstance(operand, HeaderRef | ElementRef):
        locate = bind_header(operand, layout)
        return lambda fields, arguments: fields[locate(fields, arguments).valid]
    if node.op is UnaryOp.DATA_TO_BOOL and isinstance(operand, FieldRef):
        slot = layout.slot(operand)
        return lambda fields, _arguments: fields[slot] != 0
    inner = bind(operand, layout)
    match node.op:
        case UnaryOp.NOT:
            return lambda fields, arguments: not inner(fields, arguments)
        case UnaryOp.COMPLEMENT:
            return lambda fields, arguments: ~inner(fields, arguments)
        case UnaryOp.DATA_TO_BOOL:
            return lambda fields, arguments: inner(fields, arguments) != 0
    return lambda fields, arguments: 1 if inner(fields, arguments) else 0


def _bind_binary(node: Binary, layout: Layout) -> Evaluate:
    if node.op is BinaryOp.AND and isinstance(node.right, Constant):
        return _bind_mask(node.left, node.right.value, layout)
    left, right = bind(node.left, layout), bind(node.right, layout)
    match node.op:
        case BinaryOp.LOGICAL_AND:
            return lambda fields, arguments: left(fields, arguments) and right(fields, arguments)
        case BinaryOp.LOGICAL_OR:
            return lambda fields, arguments: left(fields, arguments) or right(fields, arguments)
        case BinaryOp.EQ if isinstance(node.right, Constant) and isinstance(node.left, FieldRef):
            slot, value = layout.slot(node.left), node.right.value
            return lambda fields, _arguments: fields[slot] == value
        case BinaryOp.SHIFT_LEFT | BinaryOp.SHIFT_RIGHT:
            return _bind_shift(node, left, right)
        case BinaryOp.DIV | BinaryOp.MOD:
            return _bind_division(node.op, left, right)
        case BinaryOp.TWO_COMP_MOD | BinaryOp.USAT_CAST | BinaryOp.SAT_CAST:
            assert isinstance(node.right, Constant)
            return _bind_cast(node.op, left, node.right.value)
        case BinaryOp.ADD:
            return lambda fields, arguments: left(fields, arguments) + right(fields, arguments)
        case BinaryOp.OR:
            return lambda fields, arguments: left(fields, arguments) | right(fields, arguments)
    apply = _PLAIN[node.op]
    if isinstance(node.right, Constant):
        constant = node.right.value
        return lambda fields, arguments: apply(left(fields, arguments), constant)
    return lambda fields, arguments: apply(left(fields, arguments), right(fields, arguments))


def _bind_mask(node: Expression, mask: int, layout: Layout) -> Evaluate:
    """Return a closure for `x & constant`, the most frequent operation in compiled programs."""
    if isinstance(node, FieldRef):
        slot, spec = layout.slot(node), layout.spec(node)
        full = (1 << spec.width_bits) - 1
        if not spec.signed and mask & full == full:
            return lambda fields, _arguments: fields[slot]
        return lambda fields, _arguments: fields[slot] & mask
    if isinstance(node, Binary) and node.op is BinaryOp.AND and isinstance(node.right, Constant):
        return _bind_mask(node.left, node.right.value & mask, layout)
    match node:
        case Binary(BinaryOp.SHIFT_RIGHT, FieldRef() as ref, Constant(bits)) if 0 <= bits <= MAX_SHIFT:
            sliced = layout.slot(ref)
            return lambda fields, _arguments: fields[sliced] >> bits & mask
        case Binary(BinaryOp.ADD) if not mask & (mask + 1):
            return _bind_sum(_terms(node, mask), mask, layout)
    inner = bind(node, layout)
    return lambda fields, arguments: inner(fields, arguments) & mask


def _terms(node: Expression, mask: int) -> list[Expression]:
    """Return the terms of a sum modulo `mask` + 1, a power of two: truncating to that or a greater width is a no-op."""
    match node:
        case Binary(BinaryOp.AND, inner, Constant(cut)) if cut & mask == mask:
            return _terms(inner, mask)
        case Binary(BinaryOp.ADD, left, right):
            return _terms(left, mask) + _terms(right, mask)
    return [node]


def _bind_sum(terms: list[Expression], mask: int, layout: Layout) -> Evaluate:
    """Return a closure for a sum modulo `mask` + 1; programs add long chains, truncated after every step."""
    constant = sum(term.value for term in terms if isinstance(term, Constant))
    parts = tuple(bind(term, layout) for term in terms if not isinstance(term, Constant))
    if len(parts) == 1:
        only = parts[0]
        return lambda fields, arguments: only(fields, arguments) + constant & mask

    def total(fields: Fields, arguments: Arguments) -> int:
        result = constant
        for part in parts:
            result += part(fields, arguments)
        return result & mask

    return total


def _bind_shift(node: Binary, left: Evaluate, right: Evaluate) -> Evaluate:
    shift: Callable[[int, int], int] = operator.lshift if node.op is BinaryOp.SHIFT_LEFT else operator.rshift
    if isinstance(node.right, Constant) and 0 <= node.right.value <= MAX_SHIFT:
        constant = node.right.value
        return lambda fields, arguments: shift(left(fields, arguments), constant)

    def evaluate(fields: Fields, arguments: Arguments) -> int:
        amount = right(fields, arguments)
        if amount < 0:
            raise PacketFault("negative_shift")
        return shift(left(fields, arguments), min(amount, MAX_SHIFT))

    return evaluate


def _bind_division(op: BinaryOp, left: Evaluate, right: Evaluate) -> Evaluate:
    divide: Callable[[int, int], int] = operator.floordiv if op is BinaryOp.DIV else operator.mod

    def evaluate(fields: Fields, arguments: Arguments) -> int:
        dividend, divisor = left(fields, arguments), right(fields, arguments)
        if dividend < 0 or divisor <= 0:
            raise PacketFault("undefined_division")
        return divide(dividend, divisor)

    return evaluate


def _bind_cast(op: BinaryOp, inner: Evaluate, width_bits: int) -> Evaluate:
    top, mask = sign_bit(width_bits), (1 << width_bits) - 1
    if op is BinaryOp.TWO_COMP_MOD:
        return lambda fields, arguments: ((inner(fields, arguments) & mask) ^ top) - top
    low, high = (-top, mask - top) if op is BinaryOp.SAT_CAST else (0, mask)
    return lambda fields, arguments: min(max(inner(fields, arguments), low), high)


def _bind_headers_equal(node: HeadersEqual, layout: Layout) -> Evaluate:
    left, right, negated = bind_header(node.left, layout), bind_header(node.right, layout), node.negated

    def evaluate(fields: Fields, arguments: Arguments) -> int:
        first, other = left(fields, arguments), right(fields, arguments)
        equal = fields[first.valid] != 0 and fields[first.content] == fields[other.content]
        return equal is not negated

    return evaluate
