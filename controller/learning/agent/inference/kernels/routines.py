"""Functions of LLVM over vectors of 16 figures, written in Python: loops, branches, loads and stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir

from dataplane.native import External, Module

Value = Any
"""A value of LLVM: llvmlite is untyped."""

LANES: Final = 16
WORD, INT, FLOAT, POINTER = ir.IntType(64), ir.IntType(32), ir.FloatType(), ir.PointerType()
FLOATS, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT, LANES)
_VECTOR_BYTES: Final = 4 * LANES


class _BFloat(ir.Type):  # type: ignore[misc]
    """The type bfloat, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


HALVES: Final = ir.VectorType(_BFloat(), LANES)
PAIRS: Final = ir.VectorType(_BFloat(), 2 * LANES)


class Routine:
    """A function being written: its arguments by name, and the place of the next instruction.

    A value that changes in a loop is kept in a cell, which LLVM turns into a register.
    """

    def __init__(self, module: Module, declared: External[..., None]) -> None:
        self.function = module.function(declared)
        self.function.linkage = "internal"
        self.arguments = dict(zip(declared.signature.names, self.function.args, strict=True))
        self._module = module
        self._entry = self.function.append_basic_block("entry")
        self.at = ir.IRBuilder(self.function.append_basic_block("body"))

    def __getitem__(self, name: str) -> Value:
        return self.arguments[name]

    def end(self) -> None:
        """Return from the function."""
        self.at.ret_void()
        ir.IRBuilder(self._entry).branch(self.function.basic_blocks[1])

    def cell(self, kind: ir.Type, start: Value) -> Value:
        """Return a cell that holds a value."""
        slot = ir.IRBuilder(self._entry).alloca(kind)
        slot.type = POINTER
        self.at.store(start, slot)
        return slot

    def kept(self, cell: Value, kind: ir.Type = FLOATS) -> Value:
        """Return a cell's current value."""
        return self.at.load(cell, typ=kind)

    def keep(self, cell: Value, value: Value) -> None:
        """Set a cell's value."""
        self.at.store(value, cell)

    @contextmanager
    def loop(self, count: Value) -> Iterator[Value]:
        """Write a loop over the numbers below a count; the block is its body."""
        cell = self.cell(WORD, WORD(0))
        head, body, after = (self.function.append_basic_block(name) for name in ("head", "loop", "after"))
        self.at.branch(head)
        self.at.position_at_end(head)
        number = self.kept(cell, WORD)
        self.at.cbranch(self.at.icmp_unsigned("<", number, count), body, after)
        self.at.position_at_end(body)
        yield number
        self.keep(cell, self.at.add(number, WORD(1)))
        self.at.branch(head)
        self.at.position_at_end(after)

    @contextmanager
    def case(self, condition: Value) -> Iterator[None]:
        """Write a branch; the block runs if a condition holds."""
        inside, after = (self.function.append_basic_block(name) for name in ("inside", "after"))
        self.at.cbranch(condition, inside, after)
        self.at.position_at_end(inside)
        yield
        self.at.branch(after)
        self.at.position_at_end(after)

    def sum(self, *numbers: Value | int) -> Value:
        """Return the sum of 64-bit numbers."""
        first, *others = (WORD(number) if isinstance(number, int) else number for number in numbers)
        for other in others:
            first = self.at.add(first, other)
        return first

    def times(self, *numbers: Value | int) -> Value:
        """Return the product of 64-bit numbers."""
        first, *others = (WORD(number) if isinstance(number, int) else number for number in numbers)
        for other in others:
            first = self.at.mul(first, other)
        return first

    def groups(self, count: Value) -> Value:
        """Return the number of vectors that hold this many values."""
        return self.at.lshr(self.sum(count, LANES - 1), WORD(4))

    def place(self, address: Value, figures: Value | int) -> Value:
        """Return the address of a four-byte figure."""
        return self.sum(address, self.times(figures, 4))

    def load(self, address: Value, kind: ir.Type = FLOATS) -> Value:
        """Return the value at an address."""
        return self.at.load(self._pointer(address), typ=kind, align=4)

    def store(self, value: Value, address: Value) -> None:
        """Store a value at an address."""
        self.at.store(value, self._pointer(address), align=4)

    def prefetch(self, address: Value) -> None:
        """Prefetch a cache line."""
        fetch = self._module.intrinsic("llvm.prefetch.p0", ir.VoidType(), [POINTER, INT, INT, INT])
        self.at.call(fetch, [self._pointer(address), INT(0), INT(2), INT(1)])

    def spread(self, value: Value, kind: ir.VectorType = FLOATS) -> Value:
        """Return a vector filled with one value."""
        first = self.at.insert_element(kind(ir.Undefined), value, INT(0))
        return self.at.shuffle_vector(first, kind(ir.Undefined), ir.Constant(INTS, None))

    def all(self, figure: float) -> Value:
        """Return a vector filled with a constant."""
        return ir.Constant(FLOATS, [figure] * LANES)

    def multiply_add(self, first: Value, other: Value, added: Value) -> Value:
        """Return the product of two values plus a third."""
        return self.call(f"llvm.fmuladd.v{LANES}f32", FLOATS, first, other, added)

    def total(self, vector: Value) -> Value:
        """Return the sum of a vector's figures, taken in any order."""
        add = self._module.intrinsic(f"llvm.vector.reduce.fadd.v{LANES}f32", FLOAT, [FLOAT, FLOATS])
        return self.at.call(add, [FLOAT(-0.0), vector], fastmath=("reassoc",))

    def call(self, intrinsic: str, result: ir.Type, *arguments: Value) -> Value:
        """Return the result of an instruction of LLVM or of the processor."""
        return self.at.call(
            self._module.intrinsic(intrinsic, result, [argument.type for argument in arguments]), arguments
        )

    def at_least_zero(self, vector: Value) -> Value:
        """Return a vector with negative figures replaced by 0; NaN stays."""
        return self.at.select(self.at.fcmp_ordered("<", vector, self.all(0.0)), self.all(0.0), vector)

    def turned(self, rows: list[Value]) -> list[Value]:
        """Return the columns of 16 rows: rows interleaved with those half a square away, four times."""
        low, high = (
            ir.Constant(INTS, [half + lane // 2 + LANES * (lane % 2) for lane in range(LANES)])
            for half in (0, LANES // 2)
        )
        for _ in range(4):
            pairs = list(zip(rows[: LANES // 2], rows[LANES // 2 :], strict=True))
            rows = [self.at.shuffle_vector(first, other, half) for first, other in pairs for half in (low, high)]
        return rows

    def _pointer(self, address: Value) -> Value:
        return self.at.inttoptr(address, POINTER)
