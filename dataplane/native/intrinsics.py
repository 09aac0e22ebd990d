"""Operations of kernels besides arithmetic, as declarations; `dataplane.native.translation.lowering` translates each.

A `location` is a field or an element, written as it would be read: `atomic_add(ring.tail, 1)`. Bytes count from the
array's start; wide loads and stores need no alignment. Casts, `address`, `sizeof` and `array_at` work in Python, too.
"""

# ruff: noqa: ARG001 - these are declarations
from __future__ import annotations

import ctypes
from typing import Any, NoReturn, ParamSpec, TypeVar

from dataplane.native.arrays import Array, address_of
from dataplane.native.errors import NativeError
from dataplane.native.kernels import FunctionType
from dataplane.native.scalars import I32, I64, U8, U16, U32, U64
from dataplane.native.shapes import element_ctype, shape_of
from dataplane.native.structs import Struct

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=Struct)


def _only_in_kernels() -> NoReturn:
    raise NativeError("this operation exists only inside kernels")


def as_u8(number: int) -> int:
    """Return the number's low 8 bits."""
    return U8.wrap(number)


def as_u16(number: int) -> int:
    """Return the number as u16: truncated, or widened by its own sign."""
    return U16.wrap(number)


def as_u32(number: int) -> int:
    """Return the number as u32: truncated, or widened by its own sign."""
    return U32.wrap(number)


def as_u64(number: int) -> int:
    """Return the number as u64, widened by its own sign."""
    return U64.wrap(number)


def as_i32(number: int) -> int:
    """Return the number as i32: truncated, or widened by its own sign."""
    return I32.wrap(number)


def as_i64(number: int) -> int:
    """Return the number as i64, widened by its own sign."""
    return I64.wrap(number)


def address(pointer: object) -> int:
    """Return the address of a struct or an array, 0 for null."""
    return address_of(pointer)


def view(kind: type[S], address: int) -> S:
    """Return the struct at an address; an address of 0 is the null pointer."""
    _only_in_kernels()


def array_at(kind: type[T], address: int) -> Array[T]:
    """Return a pointer to elements of a kind at an address."""
    return Array(element_ctype(shape_of(kind, "array_at")), address)


def offset(array: Array[T], count: int) -> Array[T]:
    """Return the pointer advanced by `count` elements; wraps, so that a negative count as u64 goes back."""
    _only_in_kernels()


def reference(location: T) -> Array[T]:
    """Return a pointer to a field or an element, as in `lock(reference(events.lock))`."""
    _only_in_kernels()


def stack_array(kind: type[T], count: int) -> Array[T]:
    """Return a fixed number of elements in the kernel's frame, the same ones each time; their content is undefined."""
    _only_in_kernels()


def sizeof(kind: type[Any]) -> int:
    """Return the size of a struct or number in bytes."""
    return ctypes.sizeof(element_ctype(shape_of(kind, "sizeof")))


def invoke(kind: FunctionType[P, R], address: int, /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the function at an address with a type declared by `@signature`; the type is not checked."""
    _only_in_kernels()


def load_relaxed(location: T) -> T:
    """Return the value of a location, in one access, without ordering."""
    _only_in_kernels()


def load_acquire(location: T) -> T:
    """Return the value of a location; everything before the storing thread's release is visible from here on."""
    _only_in_kernels()


def store_relaxed(location: T, value: T) -> None:
    """Store into a location in one access, without ordering."""
    _only_in_kernels()


def store_release(location: T, value: T) -> None:
    """Store into a location after everything before."""
    _only_in_kernels()


def exchange(location: T, value: T) -> T:
    """Atomically store into a location and return the previous value."""
    _only_in_kernels()


def compare_exchange(location: T, expected: T, desired: T) -> bool:
    """Atomically store `desired` if the value is `expected`, and return whether it was."""
    _only_in_kernels()


def atomic_add(location: int, number: int) -> int:
    """Atomically add to a location and return the previous value."""
    _only_in_kernels()


def atomic_sub(location: int, number: int) -> int:
    """Atomically subtract from a location and return the previous value."""
    _only_in_kernels()


def atomic_or(location: int, number: int) -> int:
    """Atomically OR into a location and return the previous value."""
    _only_in_kernels()


def atomic_and(location: int, number: int) -> int:
    """Atomically AND into a location and return the previous value."""
    _only_in_kernels()


def fence() -> None:
    """Order everything before against everything after, on all threads (sequentially consistent)."""
    _only_in_kernels()


def pause() -> None:
    """Hint to the processor that this is a spinning loop."""
    _only_in_kernels()


def copy(target: Array[int], source: Array[int], nbytes: int) -> None:
    """Copy bytes between u8 arrays, which may overlap."""
    _only_in_kernels()


def fill(target: Array[int], byte: int, nbytes: int) -> None:
    """Set bytes of a u8 array."""
    _only_in_kernels()


def prefetch(array: Array[Any]) -> None:
    """Start loading the array's target into the cache."""
    _only_in_kernels()


def load_u16(data: Array[int], offset: int) -> int:
    """Return the u16 at a byte offset, in native byte order."""
    _only_in_kernels()


def load_u32(data: Array[int], offset: int) -> int:
    """Return the u32 at a byte offset, in native byte order."""
    _only_in_kernels()


def load_u64(data: Array[int], offset: int) -> int:
    """Return the u64 at a byte offset, in native byte order."""
    _only_in_kernels()


def load_be16(data: Array[int], offset: int) -> int:
    """Return the u16 at a byte offset, most significant byte first."""
    _only_in_kernels()


def load_be32(data: Array[int], offset: int) -> int:
    """Return the u32 at a byte offset, most significant byte first."""
    _only_in_kernels()


def load_be64(data: Array[int], offset: int) -> int:
    """Return the u64 at a byte offset, most significant byte first."""
    _only_in_kernels()


def store_u16(data: Array[int], offset: int, value: int) -> None:
    """Store a u16 at a byte offset, in native byte order."""
    _only_in_kernels()


def store_u32(data: Array[int], offset: int, value: int) -> None:
    """Store a u32 at a byte offset, in native byte order."""
    _only_in_kernels()


def store_u64(data: Array[int], offset: int, value: int) -> None:
    """Store a u64 at a byte offset, in native byte order."""
    _only_in_kernels()


def store_be16(data: Array[int], offset: int, value: int) -> None:
    """Store a u16 at a byte offset, most significant byte first."""
    _only_in_kernels()


def store_be32(data: Array[int], offset: int, value: int) -> None:
    """Store a u32 at a byte offset, most significant byte first."""
    _only_in_kernels()


def store_be64(data: Array[int], offset: int, value: int) -> None:
    """Store a u64 at a byte offset, most significant byte first."""
    _only_in_kernels()


def spread_be32(target: Array[int], data: Array[int], offset: int, places: int) -> None:
    """Fill 16 elements of a u32 array with consecutive big-endian words from a byte offset of a u8 array.

    They go where a bit of `places` is set, the lowest first; the others become all ones. No byte beyond is read.
    """
    _only_in_kernels()


def same_bits(first: Array[int], other: Array[int], mask: Array[int]) -> bool:
    """Return whether 64 bytes of two u8 arrays have the same bits where a third has ones.

    Four-byte words of the first are read only where the mask has ones.
    """
    _only_in_kernels()


def bswap(number: int) -> int:
    """Return the number with its byte order reversed."""
    _only_in_kernels()


def reverse_bits(number: int) -> int:
    """Return the number with its bit order reversed."""
    _only_in_kernels()


def popcount(number: int) -> int:
    """Return the number of set bits."""
    _only_in_kernels()


def count_leading_zeros(number: int) -> int:
    """Return the number of clear bits above the highest set one; the width for 0."""
    _only_in_kernels()


def count_trailing_zeros(number: int) -> int:
    """Return the number of clear bits below the lowest set one; the width for 0."""
    _only_in_kernels()
