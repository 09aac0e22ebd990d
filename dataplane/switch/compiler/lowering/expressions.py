"""Emits expressions: exact where the value matters, otherwise only as many of the lowest bits as needed.

Every value is a machine integer of `ranges.machine_bits`. The exact one has the width of the node's range and is in
two's complement if the range has negative values.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

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
from dataplane.switch.abi import Reason
from dataplane.switch.compiler.analysis.ranges import MAX_BITS, Range, Ranges, is_truth, machine_bits, signed, unsigned
from dataplane.switch.compiler.lowering.copies import headers_equal
from dataplane.switch.compiler.lowering.division import divide
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.routine import I1, I32, I64, Routine, integer, u32, u64
from dataplane.switch.tables.arrays import WORD_BITS, word_count

_COMPARISONS = {
    BinaryOp.EQ: "==",
    BinaryOp.NE: "!=",
    BinaryOp.GT: ">",
    BinaryOp.GE: ">=",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
}
_LOGICAL = {BinaryOp.LOGICAL_AND, BinaryOp.LOGICAL_OR}
_MODULAR = {BinaryOp.ADD: "add", BinaryOp.SUB: "sub", BinaryOp.MUL: "mul"}
_BITWISE = {BinaryOp.AND: "and_", BinaryOp.OR: "or_", BinaryOp.XOR: "xor"}
_RING = {*_MODULAR, *_BITWISE, BinaryOp.SHIFT_LEFT}
"""Operators whose lowest result bits depend only on the lowest bits of their operands."""


class Expressions:
    """Emits the expressions of one routine."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.ranges = Ranges(routine.program, routine.parameters)

    @property
    def _builder(self) -> ir.IRBuilder:
        return self.routine.builder

    # ---- interface for callers

    def exact(self, node: Expression) -> tuple[ir.Value, Range]:
        """Return a value and its range; raise ProgramError if no integer of MAX_BITS can hold it."""
        interval = self.ranges.of(node)
        return self.low(node, self._machine_bits(interval)), interval

    def truth(self, node: Expression) -> ir.Value:
        """Return whether an expression is true, or non-zero."""
        if is_truth(node):
            return self._truth(node)
        value, _ = self.exact(node)
        return self._builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))

    def low(self, node: Expression, bits: int) -> ir.Value:
        """Return a value modulo 2^bits, where `bits` is the width of a machine integer."""
        if bits > MAX_BITS:
            raise self.routine.refuse(f"an expression of {bits} bits")
        interval = self.ranges.of(node)
        if interval.machine_bits < bits:
            return self._extend(self.low(node, interval.machine_bits), interval, bits)
        return self._low(node, bits)

    def modulo(self, node: Expression, width: int) -> ir.Value:
        """Return a value modulo 2^width as the machine integer of that width."""
        value = self.low(node, machine_bits(width))
        if self.ranges.of(node).within(width) or value.type.width == width:
            return value
        return self._builder.and_(value, ir.Constant(value.type, (1 << width) - 1))

    def word(self, node: Expression) -> ir.Value:
        """Return a value modulo 2^64."""
        return self.low(node, 64)

    def index(self, node: Expression, size: int) -> tuple[ir.Value, ir.Value]:
        """Return a value as 64 bits, and whether it lies in 0..size-1."""
        value, interval = self.exact(node)
        if interval.low >= 0 and interval.high < size:
            inside: ir.Value = ir.Constant(I1, 1)
        elif interval.low >= size or interval.high < 0:
            inside = ir.Constant(I1, 0)
        else:
            width = max(value.type.width, machine_bits(size.bit_length() + 1))
            wide = self._extend(value, interval, width)  # a negative index is a large unsigned one
            inside = self._builder.icmp_unsigned("<", wide, ir.Constant(wide.type, size))
        return self._extend(value, interval, 64) if value.type.width <= 64 else self._builder.trunc(value, I64), inside

    def reaches(self, node: Expression, limit: int) -> ir.Value:
        """Return whether a value is at least a positive limit."""
        value, interval = self.exact(node)
        if interval.high < limit or interval.low >= limit:
            return ir.Constant(I1, interval.low >= limit)
        width = machine_bits(max(value.type.width, limit.bit_length()) + 1)
        wide = self._extend(value, interval, width)
        return self._builder.icmp_signed(">=", wide, ir.Constant(wide.type, limit))

    def store(self, target: LValue, node: Expression) -> None:
        """Set a field to an expression, truncated to its width."""
        width = self.target_width(target)
        value = self.low(node, machine_bits(width))
        header, name = self.field(target)
        header.store(name, value, clean=self.ranges.of(node).within(width))

    def store_value(self, target: LValue, value: ir.Value, width: int) -> None:
        """Set a field to an unsigned value of at most `width` bits, truncated to the field's width."""
        wanted = self.target_width(target)
        header, name = self.field(target)
        header.store(name, resize(self.routine, value, machine_bits(wanted)), clean=width <= wanted)

    def target_width(self, target: LValue) -> int:
        """Return the width of a field in bits; raise ProgramError if it is too wide to compute with."""
        width = self.ranges.spec(target).width_bits
        if width > MAX_BITS:
            raise self.routine.refuse(f"computing with a field of {width} bits")
        return width

    # ---- headers and fields

    def header(self, ref: AnyHeaderRef) -> Header:
        """Return a header; an index outside of the stack is a fault."""
        if isinstance(ref, HeaderRef):
            return header_of(self.routine, ref.name)
        row = self.routine.layout.row(ref.stack, 0)
        index, inside = self.index(ref.index, len(row))
        self.routine.guard(inside, Reason.STACK_OUT_OF_BOUNDS)
        return Header(self.routine, row[0], index, self.routine.layout.strides(ref.stack, 0))

    def last(self, stack: str, member: int) -> Header:
        """Return the most recently extracted header of a stack; a fault if there is none."""
        following = self.following(stack)
        self.routine.guard(self._builder.icmp_unsigned("!=", following, u32(0)), Reason.STACK_OUT_OF_BOUNDS)
        index = self._builder.zext(self._builder.sub(following, u32(1)), I64)
        layout = self.routine.layout
        return Header(self.routine, layout.row(stack, member)[0], index, layout.strides(stack, member))

    def following(self, stack: str) -> ir.Value:
        """Return the index of a stack's next extracted element, as 32 bits."""
        pointer = self.routine.offset(self.routine.region, self.routine.layout.next_index[stack])
        return self.routine.load(pointer, I32, "region", 4)

    def field(self, ref: LValue) -> tuple[Header, str]:
        """Return the header that a field is in, and the field's name."""
        match ref:
            case FieldRef(header, name):
                return header_of(self.routine, header), name
            case ElementFieldRef(element, name):
                return self.header(element), name
            case LastFieldRef(stack, name, member):
                return self.last(stack, member), name

    # ---- machine integers

    def _machine_bits(self, interval: Range) -> int:
        if interval.bits > MAX_BITS:
            raise self.routine.refuse(f"an expression of more than {MAX_BITS} bits")
        return interval.machine_bits

    def _extend(self, value: ir.Value, interval: Range, bits: int) -> ir.Value:
        """Return an exact value as a wider integer, or the lowest bits of it."""
        if value.type.width == bits:
            return value
        if value.type.width > bits:
            return self._builder.trunc(value, integer(bits))
        return (self._builder.sext if interval.signed else self._builder.zext)(value, integer(bits))

    def _constant(self, value: int, bits: int) -> ir.Constant:
        return ir.Constant(integer(bits), value & ((1 << bits) - 1))

    def _low(self, node: Expression, bits: int) -> ir.Value:
        """Return the lowest bits of a node whose range needs at least as many."""
        if is_truth(node):
            return self._builder.zext(self._truth(node), integer(bits))
        match node:
            case Constant(value):
                return self._constant(value, bits)
            case FieldRef() | ElementFieldRef() | LastFieldRef():
                return self._field(node, bits)
            case ArgumentRef(index):
                return self._argument(index, bits)
            case Choice():
                return self._choice(node, lambda arm: self.low(arm, bits))
            case Unary():
                return self._unary(node, bits)
            case Binary():
                return self._binary(node, bits)
        raise self.routine.refuse(type(node).__name__)

    def _field(self, node: LValue, bits: int) -> ir.Value:
        header, name = self.field(node)
        spec, value = header.spec(name), header.load(name)
        if spec.signed and spec.width_bits < value.type.width:
            unused = ir.Constant(value.type, value.type.width - spec.width_bits)
            value = self._builder.ashr(self._builder.shl(value, unused), unused)
        return self._extend(value, self.ranges.of(node), bits)

    def _argument(self, index: int, bits: int) -> ir.Value:
        parameters = self.routine.parameters
        start = sum(word_count(width) for width in parameters[:index])
        pointer = self._builder.gep(self.routine.arguments, [u64(start)], source_etype=I64)
        value = self.routine.load(pointer, integer(WORD_BITS * word_count(parameters[index])), "entry", 8)
        return self._extend(value, unsigned(1), bits)

    def _choice(self, node: Choice, emit: Callable[[Expression], ir.Value]) -> ir.Value:
        """Return one of two values; only the chosen one is computed, since it may fault."""
        condition = self.truth(node.condition)
        return self._branch(condition, lambda: emit(node.left), lambda: emit(node.right))

    def _branch(
        self, condition: ir.Value, if_true: Callable[[], ir.Value], if_false: Callable[[], ir.Value]
    ) -> ir.Value:
        routine, builder = self.routine, self._builder
        yes, no, join = routine.block(), routine.block(), routine.block()
        builder.cbranch(condition, yes, no)
        arms = []
        for block, emit in ((yes, if_true), (no, if_false)):
            builder.position_at_end(block)
            value = emit()
            arms.append((value, builder.block))
            builder.branch(join)
        builder.position_at_end(join)
        joined = builder.phi(arms[0][0].type)
        for value, block in arms:
            joined.add_incoming(value, block)
        return joined

    # ---- operators on data

    def _unary(self, node: Unary, bits: int) -> ir.Value:
        operand = node.operand
        match node.op, operand:
            case UnaryOp.COMPLEMENT, _:
                return self._builder.not_(self.low(_expression(operand), bits))
            case UnaryOp.BOOL_TO_DATA, _:
                return self._builder.zext(self.truth(_expression(operand)), integer(bits))
            case UnaryOp.SIZE_STACK, StackRef(name):
                return self._extend(self.following(name), unsigned(32), bits)
            case UnaryOp.LAST_STACK_INDEX, StackRef(name):
                following = self._builder.zext(self.following(name), I64)
                return self._extend(self._builder.sub(following, u64(1)), unsigned(64), bits)
        raise self.routine.refuse(f"operator {node.op.value}")

    def _binary(self, node: Binary, bits: int) -> ir.Value:
        if node.op in _MODULAR:
            left, right = self.low(node.left, bits), self.low(node.right, bits)
            return getattr(self._builder, _MODULAR[node.op])(left, right)
        if node.op in _BITWISE:
            return self._bitwise(node, bits)
        match node.op:
            case BinaryOp.SHIFT_LEFT:
                return self._shift_left(node, bits)
            case BinaryOp.SHIFT_RIGHT:
                return self._shift_right(node, bits)
            case BinaryOp.DIV | BinaryOp.MOD:
                return self._division(node, bits)
            case BinaryOp.TWO_COMP_MOD:
                return self._two_comp_mod(node, bits)
        return self._saturate(node, bits)

    def _bitwise(self, node: Binary, bits: int) -> ir.Value:
        """Return `x & constant` using no more of x than the constant keeps."""
        match node:
            case Binary(BinaryOp.AND, left, Constant(mask)) if mask >= 0:
                inner = min(bits, machine_bits(max(1, mask.bit_length())))
                value = self.low(left, inner)
                cut = mask & ((1 << inner) - 1)
                if self.ranges.of(left).low < 0 or self.ranges.of(left).high & ~mask or not _is_ones(mask):
                    value = self._builder.and_(value, ir.Constant(value.type, cut))
                return self._extend(value, unsigned(1), bits)
        left, right = self.low(node.left, bits), self.low(node.right, bits)
        return getattr(self._builder, _BITWISE[node.op])(left, right)

    def _amount(self, node: Expression) -> tuple[ir.Value, Range]:
        """Return the shift amount; a fault if it is negative."""
        amount, interval = self.exact(node)
        if interval.signed:
            holds = self._builder.icmp_signed(">=", amount, ir.Constant(amount.type, 0))
            self.routine.guard(holds, Reason.NEGATIVE_SHIFT)
        return amount, interval

    def _shift_left(self, node: Binary, bits: int) -> ir.Value:
        if isinstance(node.right, Constant) and node.right.value >= 0:
            value = self.low(node.left, bits)
            if node.right.value >= bits:
                return self._constant(0, bits)
            return self._builder.shl(value, ir.Constant(value.type, node.right.value))
        amount, _ = self._amount(node.right)
        value = self.low(node.left, bits)
        wide = max(amount.type.width, bits)
        beyond = self._builder.icmp_unsigned(">=", self._extend(amount, unsigned(1), wide), self._constant(bits, wide))
        shifted = self._builder.shl(value, self._extend(amount, unsigned(1), bits))
        return self._builder.select(beyond, self._constant(0, bits), shifted)

    def _shift_right(self, node: Binary, bits: int) -> ir.Value:
        interval = self.ranges.of(node.left)
        match node.right:
            case Constant(amount) if amount >= 0:
                wanted = machine_bits(amount + bits)
                if wanted < interval.bits and wanted <= MAX_BITS:  # the lowest bits of the shifted value suffice
                    value = self.low(node.left, wanted)
                    shifted = self._builder.lshr(value, ir.Constant(value.type, amount))
                    return self._extend(shifted, unsigned(1), bits)
                value, _ = self.exact(node.left)
                return self._extend(self._shifted(value, self._constant(amount, 64), interval), interval, bits)
        distance, _ = self._amount(node.right)
        value, _ = self.exact(node.left)
        return self._extend(self._shifted(value, distance, interval), interval, bits)

    def _shifted(self, value: ir.Value, amount: ir.Value, interval: Range) -> ir.Value:
        """Return an exact value shifted to the right, by any amount."""
        builder, width = self._builder, value.type.width
        wide = max(amount.type.width, 16)
        distance = self._extend(amount, unsigned(1), max(wide, width))
        beyond = builder.icmp_unsigned(">=", distance, ir.Constant(distance.type, width))
        most = ir.Constant(value.type, width - 1)
        cut = self._extend(distance, unsigned(1), width)
        if interval.signed:
            return builder.ashr(value, builder.select(beyond, most, cut))
        return builder.select(beyond, ir.Constant(value.type, 0), builder.lshr(value, cut))

    def _division(self, node: Binary, bits: int) -> ir.Value:
        builder = self._builder
        (dividend, above), (divisor, below) = self.exact(node.left), self.exact(node.right)
        if above.signed:
            holds = builder.icmp_signed(">=", dividend, ir.Constant(dividend.type, 0))
            self.routine.guard(holds, Reason.UNDEFINED_DIVISION)
        if below.low <= 0:
            compare = builder.icmp_signed if below.signed else builder.icmp_unsigned
            self.routine.guard(compare(">", divisor, ir.Constant(divisor.type, 0)), Reason.UNDEFINED_DIVISION)
        width = max(dividend.type.width, divisor.type.width)
        operands = self._extend(dividend, unsigned(1), width), self._extend(divisor, unsigned(1), width)
        quotient, remainder = divide(self.routine, *operands)
        return self._extend(quotient if node.op is BinaryOp.DIV else remainder, unsigned(1), bits)

    def _two_comp_mod(self, node: Binary, bits: int) -> ir.Value:
        width = _constant(node.right)
        if self.ranges.of(node.left) == self.ranges.of(node):
            return self.low(node.left, bits)
        value = self.low(node.left, machine_bits(width))
        unused = value.type.width - width
        if unused:
            shift = ir.Constant(value.type, unused)
            value = self._builder.ashr(self._builder.shl(value, shift), shift)
        return self._extend(value, self.ranges.of(node), bits)

    def _saturate(self, node: Binary, bits: int) -> ir.Value:
        width = _constant(node.right)
        kept = signed(width) if node.op is BinaryOp.SAT_CAST else unsigned(width)
        low, high = kept.low, kept.high
        value, interval = self.exact(node.left)
        compare = self._builder.icmp_signed if interval.signed else self._builder.icmp_unsigned
        size = value.type.width
        if interval.low < low:
            floor = self._constant(low, size)
            value = self._builder.select(compare("<", value, floor), floor, value)
        if interval.high > high:
            ceiling = self._constant(high, size)
            value = self._builder.select(compare(">", value, ceiling), ceiling, value)
        return self._extend(value, interval, bits)

    # ---- truth values

    def _truth(self, node: Expression) -> ir.Value:
        match node:
            case Truth(value):
                return ir.Constant(I1, int(value))
            case Choice():
                return self._choice(node, self.truth)
            case HeadersEqual(left, right, negated):
                first, other = self.header(left), self.header(right)
                equal = headers_equal(first, other)
                return self._builder.not_(equal) if negated else equal
            case Unary(UnaryOp.VALID, (HeaderRef() | ElementRef()) as ref):
                return self.header(ref).is_valid()
            case Unary(UnaryOp.NOT, operand):
                return self._builder.not_(self.truth(_expression(operand)))
            case Unary(_, operand):
                return self.truth(_expression(operand))
            case Binary(op, _, _) if op in _LOGICAL:
                return self._logical(node)
            case Binary():
                return self._comparison(node)
        raise self.routine.refuse(type(node).__name__)

    def _logical(self, node: Binary) -> ir.Value:
        left = self.truth(node.left)
        constant = ir.Constant(I1, int(node.op is BinaryOp.LOGICAL_OR))
        if node.op is BinaryOp.LOGICAL_AND:
            return self._branch(left, lambda: self.truth(node.right), lambda: constant)
        return self._branch(left, lambda: constant, lambda: self.truth(node.right))

    def _comparison(self, node: Binary) -> ir.Value:
        if is_truth(node.left):
            first, other = self.truth(node.left), self.truth(node.right)
            return self._builder.icmp_unsigned(_COMPARISONS[node.op], first, other)
        (left, left_range), (right, right_range) = self.exact(node.left), self.exact(node.right)
        both = left_range.union(right_range)
        bits = self._machine_bits(both)
        left, right = self._extend(left, left_range, bits), self._extend(right, right_range, bits)
        compare = self._builder.icmp_signed if both.signed else self._builder.icmp_unsigned
        return compare(_COMPARISONS[node.op], left, right)


def _expression(operand: object) -> Expression:
    assert isinstance(operand, Expression)
    return operand


def _constant(node: Expression) -> int:
    assert isinstance(node, Constant)
    return node.value


def _is_ones(mask: int) -> bool:
    return not mask & (mask + 1)
