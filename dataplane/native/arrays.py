"""Pointers to elements, in kernels and in Python."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")
N = TypeVar("N")


class Array(Generic[T]):
    """A pointer to contiguous elements in memory; it has no length, so no index is checked.

    Python can also read and write the elements. `owner` stays alive as long as this pointer object does.
    """

    __slots__ = ("address", "element", "owner")

    def __init__(self, element: type[Any], address: int, owner: object = None) -> None:
        self.element, self.address, self.owner = element, address, owner

    def __getitem__(self, index: int) -> T:
        return cast("T", self._cells(index)[0])

    def __setitem__(self, index: int, value: T) -> None:
        self._cells(index)[0] = value

    def _cells(self, index: int) -> Any:  # noqa: ANN401 - a ctypes array of whatever the element is
        if not self.address:
            raise ValueError("the pointer is null")
        return (self.element * 1).from_address(self.address + index * ctypes.sizeof(self.element))


class Inline(Array[T], Generic[T, N]):
    """N elements in place, as a field of a struct: `Inline[u64, Literal[8]]`; for a kernel, a pointer to the first."""

    __slots__ = ()


IN_PLACE: Final = object()
InPlace = Annotated[T, IN_PLACE]
"""A struct in place, as a field of another one: `InPlace[Ring]`; reads as the struct, and is set field by field."""


def pointer_to(memory: object) -> Array[Any]:
    """Return a pointer to a buffer's bytes or elements; it keeps the buffer alive, and so does a field set to it.

    Raises TypeError unless it is a buffer that is writable or bytes.
    """
    if isinstance(memory, bytes):
        address = ctypes.cast(ctypes.c_char_p(memory), ctypes.c_void_p).value or 0
        return Array(ctypes.c_uint8, address, memory)
    if isinstance(memory, ctypes.Array):
        return Array(memory._type_, ctypes.addressof(memory), memory)
    buffer = cast("Buffer", memory)
    first = ctypes.c_char.from_buffer(buffer) if memoryview(buffer).nbytes else ctypes.c_char()
    return Array(ctypes.c_uint8, ctypes.addressof(first), (memory, first))


def address_of(value: object) -> int:
    """Return the memory address of a struct, a pointer, a ctypes object or a buffer; None is 0, an int is itself."""
    if isinstance(value, int):
        return value
    if value is None:
        return 0
    if isinstance(value, Array):
        return value.address
    if isinstance(value, ctypes.Structure | ctypes.Union | ctypes.Array):
        return ctypes.addressof(value)
    return pointer_to(value).address
