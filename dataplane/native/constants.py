"""Read-only tables of numbers: part of the code, or of the process that has loaded it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast, get_args

from dataplane.native.arrays import Array
from dataplane.native.errors import NativeError
from dataplane.native.scalars import CTYPES, Scalar
from dataplane.native.shapes import shape_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """Numbers of one type, embedded in the object code; a kernel sees an `Array`."""

    element: Scalar
    numbers: tuple[int, ...]

    def __post_init__(self) -> None:
        for number in self.numbers:
            if not self.element.low <= number <= self.element.high:
                raise NativeError(f"a constant table of {self.element}: {number} does not fit")

    def __getitem__(self, index: int) -> int:
        return self.numbers[index]

    def __len__(self) -> int:
        return len(self.numbers)


def constant_table(kind: type[T], numbers: Iterable[T]) -> Array[T]:
    """Return a read-only table of numbers of a type, which kernels and Python can index."""
    element = shape_of(kind, "a constant table")
    if not isinstance(element, Scalar):
        raise NativeError(f"a constant table holds numbers, not {element}")
    return cast("Array[T]", ConstantTable(element, tuple(cast("Iterable[int]", numbers))))


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Numbers of one type that cached code refers to only by symbol; a kernel sees an `Array`."""

    element: Scalar
    symbol: str
    count: int

    def __len__(self) -> int:
        return self.count


_process_tables: dict[str, ctypes.Array[Any]] = {}


def process_table(kind: type[T], symbol: str, numbers: Iterable[T]) -> Array[T]:
    """Return a read-only table with per-process numbers: kernels get them when they are loaded.

    Numbers given again for a symbol replace the previous ones, also in kernels that are already loaded.
    """
    element = shape_of(kind, "a process's table")
    if not isinstance(element, Scalar):
        raise NativeError(f"a process's table holds numbers, not {element}")
    values = tuple(cast("Iterable[int]", numbers))
    memory = _process_tables.get(symbol)
    if memory is None:
        memory = _process_tables[symbol] = (CTYPES[element] * len(values))()
    if len(memory) != len(values):
        raise NativeError(f"the process's table {symbol} has {len(memory)} numbers, not {len(values)}")
    memory[:] = values
    return cast("Array[T]", ProcessTable(element, symbol, len(values)))


def process_symbols() -> Iterator[tuple[str, int]]:
    """Yield the name and the address of each of this process's tables."""
    for symbol, memory in list(_process_tables.items()):
        yield symbol, ctypes.addressof(memory)


def element_of_tuple(annotation: object, where: str) -> Scalar | None:
    """Return the element type of an annotation such as `tuple[u32, ...]`, or None if it has no known width."""
    arguments = get_args(annotation)
    if len(arguments) != 2 or arguments[1] is not Ellipsis or arguments[0] is int:
        return None
    element = shape_of(arguments[0], where)
    return element if isinstance(element, Scalar) else None
