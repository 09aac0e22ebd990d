"""Structs in memory shared by Python and kernels: a ctypes structure whose fields are its annotations."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from dataplane.native.arrays import Array, address_of
from dataplane.native.errors import NativeError
from dataplane.native.shapes import (
    ArrayShape,
    NestedShape,
    Shape,
    StructShape,
    ctype_in_memory,
    element_ctype,
    resolve,
    shape_of,
)

if TYPE_CHECKING:
    from _ctypes import _PyCStructType as _CtypesMeta
else:
    _CtypesMeta = type(ctypes.Structure)


# Python 3.14 keeps non-string annotations here: reading them earlier would need names that do not exist yet.
_LAZY = {"__annotate__", "__annotate_func__"}


class StructMeta(_CtypesMeta):
    """Turns the annotations of a class into the fields of a C struct, in order, with C's alignment."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:  # noqa: N805 - it is a class
        """Lay out the class; raises NativeError for a field of a type that kernels do not support."""
        # Not in __new__: since Python 3.13 ctypes creates a class's layout, which takes the fields, in __init__.
        super().__init__(name, bases, namespace)
        shapes = _own_shapes(name, namespace)
        cls._fields_ = [
            (field, ctypes.c_uint64 if shape is None else ctype_in_memory(shape)) for field, shape in shapes.items()
        ]
        for field, shape in shapes.items():
            if shape is None or isinstance(shape, StructShape | ArrayShape):
                setattr(cls, field, PointerField(field, getattr(cls, field)))
            elif isinstance(shape, NestedShape):
                setattr(cls, field, NestedField(field, getattr(cls, field)))


def _own_shapes(name: str, namespace: Mapping[str, Any]) -> dict[str, Shape | None]:
    """Return the shapes of a class body's fields; None for a pointer to a struct that is not defined yet."""
    own: dict[str, str] = namespace.get("__annotations__", {})
    if any(not isinstance(text, str) for text in own.values()) or _LAZY & namespace.keys():
        raise NativeError(f"{name}: the file lacks `from __future__ import annotations`")
    scope = sys.modules[namespace["__module__"]].__dict__
    return {field: _early_shape(text, scope, f"{name}.{field}") for field, text in own.items()}


def _early_shape(text: str, scope: Mapping[str, Any], where: str) -> Shape | None:
    """Return a field's shape, or None for a struct that is not defined yet, to which only a pointer is possible."""
    try:
        return shape_of(resolve(text, scope, where), where)
    except NameError:
        return None


class Struct(ctypes.Structure, metaclass=StructMeta):
    """Base of structs that kernels and Python share, with C's layout.

    A field of struct type is a pointer, as is one of `Array` type; `Inline` and `InPlace` are in place. From Python, a
    pointer field accepts a struct, the result of `pointer_to`, an address or None, and keeps its value alive. A struct
    may inherit the fields of another one and is then accepted wherever that one is. Annotations must be resolvable in
    the module that defines the class.
    """

    @property
    def address(self) -> int:
        """Return the struct's address in memory."""
        return ctypes.addressof(self)


class PointerField:
    """A field that holds an address; reading returns the struct (None for null) or the `Array` that it points to."""

    def __init__(self, name: str, cell: Any) -> None:  # noqa: ANN401 - ctypes' field descriptors have no public type
        self.name, self.cell = name, cell
        self.offset: int = cell.offset
        self.size: int = cell.size

    def __get__(self, struct: Struct | None, owner: type[Struct]) -> object:
        if struct is None:
            return self
        address: int = self.cell.__get__(struct, owner)
        shape = field_shapes(owner)[self.name]
        if isinstance(shape, ArrayShape):
            return Array(element_ctype(shape.element), address, struct.__dict__.get(self.name))
        return cast("StructShape", shape).struct.from_address(address) if address else None

    def __set__(self, struct: Struct, value: object) -> None:
        self.cell.__set__(struct, address_of(value))
        struct.__dict__[self.name] = value


class NestedField:
    """A field that is a struct; Python gets the same object each time, which keeps its fields' values alive."""

    def __init__(self, name: str, cell: Any) -> None:  # noqa: ANN401 - ctypes' field descriptors have no public type
        self.name, self.cell = name, cell
        self.offset: int = cell.offset
        self.size: int = cell.size

    def __get__(self, struct: Struct | None, owner: type[Struct]) -> object:
        if struct is None:
            return self
        nested = struct.__dict__.get(self.name)
        if nested is None:
            nested = struct.__dict__[self.name] = self.cell.__get__(struct, owner)
        return nested

    def __set__(self, struct: Struct, value: object) -> None:
        raise NativeError(f"{type(struct).__name__}.{self.name} is in place: set its fields")


def field_shapes(struct: type[ctypes.Structure]) -> Mapping[str, Shape]:
    """Return the fields of a struct and of its bases, in memory order."""
    cached: dict[str, Shape] | None = struct.__dict__.get("_shapes_")
    if cached is not None:
        return cached
    if not isinstance(struct, StructMeta):
        raise NativeError(f"{struct.__name__} is not a Struct")
    shapes: dict[str, Shape] = {}
    for part in reversed(struct.__mro__):
        if isinstance(part, StructMeta):
            scope = sys.modules[part.__module__].__dict__
            for field, text in inspect.get_annotations(part).items():
                shape = shapes[field] = _late_shape(text, scope, f"{part.__name__}.{field}")
                if isinstance(shape, NestedShape) and not isinstance(getattr(part, field), NestedField):
                    raise NativeError(f"{part.__name__}.{field}: {shape} must be defined first")
    cast("Any", struct)._shapes_ = shapes
    return shapes


def _late_shape(text: str, scope: Mapping[str, Any], where: str) -> Shape:
    try:
        return shape_of(resolve(text, scope, where), where)
    except NameError as error:
        raise NativeError(f"{where}: {error}") from None
