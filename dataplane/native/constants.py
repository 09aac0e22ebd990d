"""Read-only tables of numbers that are part of the code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar, cast, get_args

from dataplane.native.arrays import Array
from dataplane.native.errors import NativeError
from dataplane.native.scalars import Scalar
from dataplane.native.shapes import shape_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConstantTable:
    """Numbers of one type, laid down in the object code; a kernel sees an `Array`."""

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
    """Return a read-only table of numbers of a kind, which kernels and Python can index."""
    element = shape_of(kind, "a constant table")
    if not isinstance(element, Scalar):
        raise NativeError(f"a constant table holds numbers, not {element}")
    return cast("Array[T]", ConstantTable(element, tuple(cast("Iterable[int]", numbers))))


def element_of_tuple(annotation: object, place: str) -> Scalar | None:
    """Return the type of the elements that `tuple[u32, ...]` names, or None when it names none of known width."""
    arguments = get_args(annotation)
    if len(arguments) != 2 or arguments[1] is not Ellipsis or arguments[0] is int:
        return None
    element = shape_of(arguments[0], place)
    return element if isinstance(element, Scalar) else None
