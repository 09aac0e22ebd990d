"""Lowering of the operations of dataplane/native/intrinsics.py to LLVM."""

from __future__ import annotations

import ast
import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llvmlite import ir

from dataplane.native import constants, intrinsics
from dataplane.native.kernels import FunctionType
from dataplane.native.scalars import BOOL, I32, I64, U8, U16, U32, U64, Scalar
from dataplane.native.shapes import ArrayShape, InlineShape, NestedShape, Shape, StructShape, element_ctype
from dataplane.native.translation import operators
from dataplane.native.translation.values import (
    BIT,
    BYTE,
    HALF,
    POINTER,
    WORD,
    Literal,
    LValue,
    Operand,
    Value,
    constant,
    value_type,
)

if TYPE_CHECKING:
    from dataplane.native.translation.expressions import Expressions

Emit = Callable[["Expressions", ast.Call], Operand | None]


@dataclass(frozen=True, slots=True)
class Lowering:
    """Emitter of an operation, and its number of arguments; None: the emitter checks that itself."""

    arguments: int | None
    emit: Emit


LOWERINGS: dict[Callable[..., Any], Lowering] = {}


def _lowers(operation: Callable[..., Any], arguments: int | None) -> Callable[[Emit], Emit]:
    def register(emit: Emit) -> Emit:
        LOWERINGS[operation] = Lowering(arguments, emit)
        return emit

    return register


# Casts and pointers.


def _cast_to(shape: Scalar) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        operand = frame.evaluate(node.args[0])
        if isinstance(operand, Literal):
            return constant(shape, shape.wrap(operand.number))
        return operators.cast(frame.builder, frame.number(node.args[0], operand), shape)

    return emit


for _operation, _shape in (
    (intrinsics.as_u8, U8),
    (intrinsics.as_u16, U16),
    (intrinsics.as_u32, U32),
    (intrinsics.as_u64, U64),
    (intrinsics.as_i32, I32),
    (intrinsics.as_i64, I64),
):
    LOWERINGS[_operation] = Lowering(1, _cast_to(_shape))


@_lowers(intrinsics.address, 1)
def _address(frame: Expressions, node: ast.Call) -> Operand:
    return Value(U64, frame.builder.ptrtoint(frame.pointer(node.args[0]).ir, WORD))


def _pointer_at(frame: Expressions, node: ast.expr) -> Any:  # noqa: ANN401 - llvmlite is untyped
    number = frame.value(node, U64).ir
    if isinstance(number, ir.Constant) and not number.constant:
        return ir.Constant(POINTER, None)
    return frame.builder.inttoptr(number, POINTER)


@_lowers(intrinsics.view, 2)
def _view(frame: Expressions, node: ast.Call) -> Operand:
    shape = frame.shape(node.args[0])
    if not isinstance(shape, StructShape):
        raise frame.error(node, f"view() takes a struct, not {shape}: use array_at()")
    return Value(shape, _pointer_at(frame, node.args[1]))


@_lowers(intrinsics.array_at, 2)
def _array_at(frame: Expressions, node: ast.Call) -> Operand:
    return Value(ArrayShape(frame.shape(node.args[0])), _pointer_at(frame, node.args[1]))


def _array(frame: Expressions, node: ast.expr) -> tuple[Any, Shape]:
    value = frame.pointer(node)
    if not isinstance(value.shape, ArrayShape):
        raise frame.error(node, f"this is {value.shape}, where an array is needed")
    return value.ir, value.shape.element


@_lowers(intrinsics.offset, 2)
def _offset(frame: Expressions, node: ast.Call) -> Operand:
    pointer, element = _array(frame, node.args[0])
    kind = frame.module.element_type(element)
    return Value(ArrayShape(element), frame.builder.gep(pointer, [frame.index(node.args[1])], source_etype=kind))


@_lowers(intrinsics.reference, 1)
def _reference(frame: Expressions, node: ast.Call) -> Operand:
    memory = frame.memory(node.args[0])
    if isinstance(memory.shape, InlineShape):
        raise frame.error(node, "elements in place are already an array")
    if isinstance(memory.shape, NestedShape):
        raise frame.error(node, "a struct in place is already a reference")
    return Value(ArrayShape(memory.shape), memory.pointer)


def _known_number(frame: Expressions, node: ast.expr) -> int:
    operand = frame.evaluate(node)
    if not isinstance(operand, Literal) or operand.number < 1:
        raise frame.error(node, "this must be a positive constant")
    return operand.number


@_lowers(intrinsics.stack_array, 2)
def _stack_array(frame: Expressions, node: ast.Call) -> Operand:
    element = frame.shape(node.args[0])
    count = _known_number(frame, node.args[1])
    memory = frame.reserve(ir.ArrayType(frame.module.element_type(element), count))
    return Value(ArrayShape(element), memory)


@_lowers(intrinsics.sizeof, 1)
def _sizeof(frame: Expressions, node: ast.Call) -> Operand:
    return Literal(ctypes.sizeof(element_ctype(frame.shape(node.args[0]))))


# Functions that are known by their address.


@_lowers(intrinsics.invoke, None)
def _invoke(frame: Expressions, node: ast.Call) -> Operand | None:
    if len(node.args) < 2:
        raise frame.error(node, "invoke takes a function type, an address and the function's arguments")
    kind = frame.thing(node.args[0])
    if not isinstance(kind, FunctionType):
        raise frame.error(node, f"`{ast.unparse(node.args[0])}` is not a function type: declare one with @signature")
    number = frame.value(node.args[1], U64).ir
    values = frame.arguments(node, kind, node.args[2:])
    declared = ir.FunctionType(value_type(kind.signature.result), [value.type for value in values])
    # A declaration carries this for functions called by name, here each call must: narrow numbers are passed as in C.
    narrow = {
        index: ("signext" if shape.signed else "zeroext",)
        for index, shape in enumerate(kind.signature.shapes)
        if isinstance(shape, Scalar) and shape.bits < 32
    }
    function = frame.builder.inttoptr(number, declared.as_pointer())
    return frame.result_of(kind, frame.builder.call(function, values, attrs=("nounwind",), arg_attrs=narrow))


# Memory that threads share.


def _shared(frame: Expressions, node: ast.expr) -> LValue:
    location = frame.memory(node)
    if location.shape == BOOL or not isinstance(location.shape, Scalar | StructShape | ArrayShape):
        raise frame.error(node, f"{location.shape} is not loaded and stored as one: use a number of 8 to 64 bits")
    return location


def _size(shape: Shape) -> int:
    return shape.nbytes if isinstance(shape, Scalar) else 8


def _loading(ordering: str) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        location = _shared(frame, node.args[0])
        kind, align = value_type(location.shape), _size(location.shape)
        return Value(location.shape, frame.builder.load_atomic(location.pointer, ordering, align, typ=kind))

    return emit


def _storing(ordering: str) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> None:
        location = _shared(frame, node.args[0])
        value = frame.value(node.args[1], location.shape)
        frame.builder.store_atomic(value.ir, location.pointer, ordering, _size(location.shape))

    return emit


LOWERINGS[intrinsics.load_relaxed] = Lowering(1, _loading("monotonic"))
LOWERINGS[intrinsics.load_acquire] = Lowering(1, _loading("acquire"))
LOWERINGS[intrinsics.store_relaxed] = Lowering(2, _storing("monotonic"))
LOWERINGS[intrinsics.store_release] = Lowering(2, _storing("release"))


def _changing(name: str) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        location = _shared(frame, node.args[0])
        if name != "xchg" and not isinstance(location.shape, Scalar):
            raise frame.error(node, f"{location.shape} is not a number to calculate with")
        value = frame.value(node.args[1], location.shape)
        return Value(location.shape, frame.builder.atomic_rmw(name, location.pointer, value.ir, "acq_rel"))

    return emit


_CHANGES: tuple[tuple[Callable[..., Any], str], ...] = (
    (intrinsics.exchange, "xchg"),
    (intrinsics.atomic_add, "add"),
    (intrinsics.atomic_sub, "sub"),
    (intrinsics.atomic_or, "or"),
    (intrinsics.atomic_and, "and"),
)
for _change, _name in _CHANGES:
    LOWERINGS[_change] = Lowering(2, _changing(_name))


@_lowers(intrinsics.compare_exchange, 3)
def _compare_exchange(frame: Expressions, node: ast.Call) -> Operand:
    location = _shared(frame, node.args[0])
    expected = frame.value(node.args[1], location.shape).ir
    desired = frame.value(node.args[2], location.shape).ir
    pair = frame.builder.cmpxchg(location.pointer, expected, desired, "acq_rel", "acquire")
    return Value(BOOL, frame.builder.extract_value(pair, 1))


@_lowers(intrinsics.fence, 0)
def _fence(frame: Expressions, node: ast.Call) -> None:
    del node
    frame.builder.fence("seq_cst")


@_lowers(intrinsics.pause, 0)
def _pause(frame: Expressions, node: ast.Call) -> None:
    del node
    if frame.module.is_x86:
        frame.builder.call(frame.module.intrinsic("llvm.x86.sse2.pause", ir.VoidType(), []), [])


# Bytes.


def _bytes(frame: Expressions, node: ast.expr) -> Any:  # noqa: ANN401 - llvmlite is untyped
    return frame.value(node, ArrayShape(U8)).ir


@_lowers(intrinsics.copy, 3)
def _copy(frame: Expressions, node: ast.Call) -> None:
    target, source = _bytes(frame, node.args[0]), _bytes(frame, node.args[1])
    move = frame.module.intrinsic("llvm.memmove.p0.p0.i64", ir.VoidType(), [POINTER, POINTER, WORD, BIT])
    frame.builder.call(move, [target, source, frame.index(node.args[2]), BIT(0)])


@_lowers(intrinsics.fill, 3)
def _fill(frame: Expressions, node: ast.Call) -> None:
    target, byte = _bytes(frame, node.args[0]), frame.value(node.args[1], U8).ir
    fill = frame.module.intrinsic("llvm.memset.p0.i64", ir.VoidType(), [POINTER, BYTE, WORD, BIT])
    frame.builder.call(fill, [target, byte, frame.index(node.args[2]), BIT(0)])


@_lowers(intrinsics.prefetch, 1)
def _prefetch(frame: Expressions, node: ast.Call) -> None:
    pointer = frame.pointer(node.args[0]).ir
    fetch = frame.module.intrinsic("llvm.prefetch.p0", ir.VoidType(), [POINTER, HALF, HALF, HALF])
    frame.builder.call(fetch, [pointer, HALF(0), HALF(3), HALF(1)])


def _place_of_bytes(frame: Expressions, node: ast.Call, first: int = 0) -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return the address given by two arguments, from `first` on: an array of bytes and an offset."""
    data = _bytes(frame, node.args[first])
    return frame.builder.gep(data, [frame.index(node.args[first + 1])], inbounds=True, source_etype=BYTE)


def _wide_load(shape: Scalar, order: str) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        number = frame.builder.load(_place_of_bytes(frame, node), typ=value_type(shape), align=1)
        return Value(shape, number if order == sys.byteorder else frame.builder.bswap(number))

    return emit


def _wide_store(shape: Scalar, order: str) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> None:
        pointer = _place_of_bytes(frame, node)
        number = frame.value(node.args[2], shape).ir
        frame.builder.store(number if order == sys.byteorder else frame.builder.bswap(number), pointer, align=1)

    return emit


for _bits, _shape in ((16, U16), (32, U32), (64, U64)):
    for _infix, _order in (("_u", sys.byteorder), ("_be", "big")):
        LOWERINGS[getattr(intrinsics, f"load{_infix}{_bits}")] = Lowering(2, _wide_load(_shape, _order))
        LOWERINGS[getattr(intrinsics, f"store{_infix}{_bits}")] = Lowering(3, _wide_store(_shape, _order))


# Vectors of 16 words; a processor that cannot load some of a vector's elements loads them one by one.

_LANES = 16
_WORDS = ir.VectorType(HALF, _LANES)
_CHOICE = ir.VectorType(BIT, _LANES)


@_lowers(intrinsics.spread_be32, 4)
def _spread_be32(frame: Expressions, node: ast.Call) -> None:
    target = frame.value(node.args[0], ArrayShape(U32)).ir
    source = _place_of_bytes(frame, node, 1)
    places = frame.builder.trunc(frame.value(node.args[3], U32).ir, ir.IntType(_LANES))
    chosen = frame.builder.bitcast(places, _CHOICE)
    load = frame.module.intrinsic("llvm.masked.expandload.v16i32", _WORDS, [POINTER, _CHOICE, _WORDS])
    words = frame.builder.call(load, [source, chosen, _WORDS([HALF(0xFFFF_FFFF)] * _LANES)])
    if sys.byteorder == "little":
        swap = frame.module.intrinsic("llvm.bswap.v16i32", _WORDS, [_WORDS])
        words = frame.builder.call(swap, [words])
    frame.builder.store(words, target, align=4)


@_lowers(intrinsics.same_bits, 3)
def _same_bits(frame: Expressions, node: ast.Call) -> Operand:
    first, other, mask = (_bytes(frame, argument) for argument in node.args)
    nothing = _WORDS([HALF(0)] * _LANES)
    bits = frame.builder.load(mask, typ=_WORDS, align=1)
    load = frame.module.intrinsic("llvm.masked.load.v16i32.p0", _WORDS, [POINTER, HALF, _CHOICE, _WORDS])
    chosen = frame.builder.icmp_unsigned("!=", bits, nothing)
    read = frame.builder.call(load, [first, HALF(1), chosen, nothing])
    apart = frame.builder.xor(read, frame.builder.load(other, typ=_WORDS, align=1))
    differs = frame.builder.icmp_unsigned("!=", frame.builder.and_(apart, bits), nothing)
    number = frame.builder.bitcast(differs, ir.IntType(_LANES))
    return Value(BOOL, frame.builder.icmp_unsigned("==", number, ir.IntType(_LANES)(0)))


# Bits, and what Python itself offers.


def _bits_of(method: str, *flags: Any) -> Emit:  # noqa: ANN401 - llvmlite is untyped
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        value = frame.number(node.args[0], frame.evaluate(node.args[0]))
        if value.shape in (BOOL, U8) and method == "bswap":
            raise frame.error(node, f"{value.shape} has no bytes to swap")
        return Value(value.shape, getattr(frame.builder, method)(value.ir, *flags))

    return emit


LOWERINGS[intrinsics.bswap] = Lowering(1, _bits_of("bswap"))
LOWERINGS[intrinsics.reverse_bits] = Lowering(1, _bits_of("bitreverse"))
LOWERINGS[intrinsics.popcount] = Lowering(1, _bits_of("ctpop"))
LOWERINGS[intrinsics.count_leading_zeros] = Lowering(1, _bits_of("ctlz", BIT(0)))
LOWERINGS[intrinsics.count_trailing_zeros] = Lowering(1, _bits_of("cttz", BIT(0)))


def _extreme(op: ast.cmpop) -> Emit:
    def emit(frame: Expressions, node: ast.Call) -> Operand:
        left, right = frame.evaluate(node.args[0]), frame.evaluate(node.args[1])
        if isinstance(left, Literal) and isinstance(right, Literal):
            best = min if isinstance(op, ast.Lt) else max
            return Literal(best(left.number, right.number))
        first, second, shape = frame.of_one_shape(node, left, right)
        chosen = operators.compare(frame.builder, op, shape, first.ir, second.ir).ir
        return Value(shape, frame.builder.select(chosen, first.ir, second.ir))

    return emit


LOWERINGS[min] = Lowering(2, _extreme(ast.Lt()))
LOWERINGS[max] = Lowering(2, _extreme(ast.Gt()))


@_lowers(len, 1)
def _len(frame: Expressions, node: ast.Call) -> Operand:
    thing = frame.thing(node.args[0])
    if not isinstance(thing, tuple | constants.ConstantTable | constants.ProcessTable):
        raise frame.error(node, "len() needs a constant table; an Array has no length")
    return Literal(len(thing))
