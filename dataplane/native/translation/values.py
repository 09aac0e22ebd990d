"""Results of a kernel's expressions during translation, and the LLVM types of shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from llvmlite.ir import instructions

from dataplane.native.scalars import BOOL, Scalar
from dataplane.native.shapes import ArrayShape, InlineShape, NestedShape, Shape, StructShape

POINTER = ir.PointerType()
BIT = ir.IntType(1)
BYTE = ir.IntType(8)
HALF = ir.IntType(32)
WORD = ir.IntType(64)


@dataclass(frozen=True, slots=True)
class Value:
    """A number or pointer known only at run time."""

    shape: Shape
    ir: Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A number known at translation, whose type adapts to its context."""

    number: int


@dataclass(frozen=True, slots=True)
class Static:
    """A Python object known at translation: a module, a type, a kernel, an intrinsic."""

    thing: object


@dataclass(frozen=True, slots=True)
class LValue:
    """Memory of a shape that can be read and assigned: a local, a field, an element."""

    shape: Shape
    pointer: Any


Operand = Value | Literal | Static


class Builder(ir.IRBuilder):  # type: ignore[misc]  # llvmlite is untyped
    """llvmlite's builder, with the one instruction that it refuses for plain pointers."""

    def store_atomic(self, value: Any, ptr: Any, ordering: str, align: int) -> Any:  # noqa: ANN401
        """Store in one access, aligned to `align` bytes."""
        stored = instructions.StoreAtomicInstr(self.block, value, ptr, ordering, align)
        self._insert(stored)
        return stored


def value_type(shape: Shape | None) -> Any:  # noqa: ANN401 - llvmlite's types are untyped
    """Return the LLVM type of a value of this shape; None for no value."""
    if shape is None:
        return ir.VoidType()
    return ir.IntType(shape.bits) if isinstance(shape, Scalar) else POINTER


def constant(shape: Scalar, number: int) -> Value:
    """Return a known number as a value."""
    return Value(shape, ir.Constant(ir.IntType(shape.bits), number))


def load(builder: Any, source: LValue, align: int | None = None) -> Value:  # noqa: ANN401 - llvmlite is untyped
    """Load from a location; an in-place value is returned as a pointer to it."""
    if isinstance(source.shape, InlineShape):
        return Value(ArrayShape(source.shape.element), source.pointer)
    if isinstance(source.shape, NestedShape):
        return Value(StructShape(source.shape.struct), source.pointer)
    if source.shape == BOOL:
        byte = builder.load(source.pointer, typ=BYTE)
        return Value(BOOL, builder.icmp_unsigned("!=", byte, BYTE(0)))
    return Value(source.shape, builder.load(source.pointer, typ=value_type(source.shape), align=align))


def store(builder: Any, value: Value, target: LValue) -> None:  # noqa: ANN401 - llvmlite is untyped
    """Store a value of the shape of its target."""
    number = builder.zext(value.ir, BYTE) if value.shape == BOOL else value.ir
    builder.store(number, target.pointer)


def untyped_alloca(builder: Any, allocated: Any) -> Any:  # noqa: ANN401 - llvmlite is untyped
    """Return an untyped pointer to memory in the frame; llvmlite's own would carry the type and refuse casts."""
    memory = builder.alloca(allocated)
    memory.type = POINTER
    return memory
