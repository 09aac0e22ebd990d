"""Shapes of annotations: numbers, pointers to structs, pointers to elements, and elements in place."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from dataplane.native.arrays import IN_PLACE, Array, Inline
from dataplane.native.errors import NativeError
from dataplane.native.scalars import BOOL, CTYPES, Scalar


@dataclass(frozen=True, slots=True)
class StructShape:
    """A pointer to one struct."""

    struct: type[ctypes.Structure]

    def __str__(self) -> str:
        return self.struct.__name__


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """A pointer to elements; structs are in place, arrays are pointers."""

    element: Shape

    def __str__(self) -> str:
        return f"Array[{self.element}]"


@dataclass(frozen=True, slots=True)
class InlineShape:
    """A number of elements in place, in a struct."""

    element: Shape
    count: int

    def __str__(self) -> str:
        return f"Inline[{self.element}, {self.count}]"


@dataclass(frozen=True, slots=True)
class NestedShape:
    """A struct in place, in a struct."""

    struct: type[ctypes.Structure]

    def __str__(self) -> str:
        return f"InPlace[{self.struct.__name__}]"


Shape = Scalar | StructShape | ArrayShape | InlineShape | NestedShape


def resolve(annotation: str, scope: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401 - annotations are any object
    """Return the object that an annotation's text names; a NameError propagates, other failures are a NativeError."""
    holder = type("Holder", (), {"__annotations__": {"it": annotation}})
    try:
        return get_type_hints(holder, dict(scope), {}, include_extras=True)["it"]
    except (TypeError, SyntaxError, AttributeError) as error:
        raise NativeError(f"{where}: {annotation} is not a type: {error}") from None


def shape_of(annotation: object, where: str) -> Shape:
    """Return the shape of a resolved annotation; `where` begins the error's text."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated and arguments[-1] is IN_PLACE:
        inner = arguments[0] if len(arguments) == 2 else None
        if not isinstance(inner, type) or not issubclass(inner, ctypes.Structure):
            raise NativeError(f"{where}: InPlace is for structs; elements in place are Inline[...]")
        return NestedShape(inner)
    if origin is Annotated and len(arguments) == 2 and isinstance(arguments[1], Scalar):
        return arguments[1]
    if annotation is bool:
        return BOOL
    if isinstance(annotation, type) and issubclass(annotation, ctypes.Structure):
        return StructShape(annotation)
    if origin is Array:
        return ArrayShape(_element(arguments[0], where))
    if origin is Inline and get_origin(arguments[1]) is Literal:
        (count,) = get_args(arguments[1])
        if isinstance(count, int) and count > 0:
            return InlineShape(_element(arguments[0], where), count)
    hint = "; write u64 or another of known width" if annotation is int else ""
    raise NativeError(f"{where}: {_name(annotation)} is not a kernel type{hint}")


def _element(annotation: object, where: str) -> Shape:
    shape = shape_of(annotation, where)
    if isinstance(shape, InlineShape):
        raise NativeError(f"{where}: elements in place cannot be nested; put them into a struct")
    if isinstance(shape, NestedShape):
        raise NativeError(f"{where}: structs in an array are always in place")
    return shape


def _name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def ctype_in_memory(shape: Shape) -> type[Any]:
    """Return the ctypes type of a field of this shape; pointers are addresses."""
    if isinstance(shape, Scalar):
        return CTYPES[shape]
    if isinstance(shape, InlineShape):
        elements: type[Any] = element_ctype(shape.element) * shape.count
        return elements
    return shape.struct if isinstance(shape, NestedShape) else ctypes.c_uint64


def element_ctype(element: Shape) -> type[Any]:
    """Return the ctypes type of an element of this shape; structs are in place."""
    return element.struct if isinstance(element, StructShape) else ctype_in_memory(element)
