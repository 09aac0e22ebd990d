"""Numeric types of kernels: aliases of `int` to a type checker, with a width and sign to a kernel."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Annotated


@dataclass(frozen=True, slots=True)
class Scalar:
    """An integer of `bits` bits that wraps, or a truth value of one bit."""

    name: str
    bits: int
    signed: bool = False

    @property
    def low(self) -> int:
        """Return the minimum value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Return the maximum value."""
        return (1 << (self.bits - self.signed)) - 1

    @property
    def nbytes(self) -> int:
        """Return the size in bytes."""
        return max(self.bits // 8, 1)

    def wrap(self, number: int) -> int:
        """Return `number` wrapped to this many bits."""
        low_bits = number & ((1 << self.bits) - 1)
        return low_bits - (1 << self.bits) if low_bits > self.high else low_bits

    def __str__(self) -> str:
        return self.name


BOOL = Scalar("bool", 1)
U8 = Scalar("u8", 8)
U16 = Scalar("u16", 16)
U32 = Scalar("u32", 32)
U64 = Scalar("u64", 64)
I32 = Scalar("i32", 32, signed=True)
I64 = Scalar("i64", 64, signed=True)

u8 = Annotated[int, U8]
u16 = Annotated[int, U16]
u32 = Annotated[int, U32]
u64 = Annotated[int, U64]
i32 = Annotated[int, I32]
i64 = Annotated[int, I64]

CTYPES: dict[Scalar, type[ctypes._SimpleCData[int]]] = {
    BOOL: ctypes.c_bool,  # type: ignore[dict-item]  # it holds a bool, which is an int
    U8: ctypes.c_uint8,
    U16: ctypes.c_uint16,
    U32: ctypes.c_uint32,
    U64: ctypes.c_uint64,
    I32: ctypes.c_int32,
    I64: ctypes.c_int64,
}
