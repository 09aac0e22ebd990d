"""Packed columns, one run of bytes each, as keys.proto describes them: the format of all numerous values.

Integers are signed, little-endian, of 1, 2, 4 or 8 bytes, all of a column of the same width; floats are IEEE 754
doubles. The message states the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import fields
from typing import Any, Final, Protocol, TypeVar, get_type_hints

import numpy as np
from google.protobuf.descriptor import EnumDescriptor
from numpy.typing import NDArray

from collectors.feed.columns import Enumeration
from collectors.statistics.columns import UNKNOWN, Flags, Integers, Numbers
from dataplane.rpc.errors import MessageError

_WIDTHS: Final = (1, 2, 4, 8)
_DOUBLE: Final = 8

Column = Integers | Numbers | Flags


C_co = TypeVar("C_co", bound=Column, covariant=True)


class PackedColumn(Protocol[C_co]):
    """Packs and unpacks a column for the feed."""

    def pack(self, column: Column) -> bytes:
        """Return a column as bytes."""
        ...

    def unpack(self, name: str, data: bytes, rows: int) -> C_co:
        """Return the column of `rows` entries; raise MessageError, which begins with `name`, if it is invalid."""
        ...


def pack_integers(column: Integers) -> bytes:
    """Return integers as bytes, as few as hold all of them."""
    least, most = int(column.min(initial=0)), int(column.max(initial=0))
    width = next(width for width in _WIDTHS if -(1 << 8 * width - 1) <= least and most < 1 << 8 * width - 1)
    return column.astype(f"<i{width}").tobytes()


def unpack_integers(name: str, data: bytes, rows: int, *, least: int = 0, most: int | None = None) -> Integers:
    """Return integers decoded from bytes; raise MessageError unless there are `rows`, all from `least` to `most`."""
    width, rest = divmod(len(data), rows) if rows else (1, len(data))
    if rest or width not in _WIDTHS:
        raise MessageError(f"{name} has {len(data)} bytes for {rows} rows")
    column: Integers = np.frombuffer(data, f"<i{width}").astype(np.int64)
    lowest, highest = int(column.min(initial=least)), int(column.max(initial=least))
    if lowest < least:
        raise MessageError(f"{name}: an entry is {lowest}")
    if most is not None and highest > most:
        raise MessageError(f"{name}: {highest} is more than {most}")
    return column


def unpack_places(name: str, data: bytes, rows: int, things: Sized) -> Integers:
    """Return indices into a list; raise MessageError for one out of range."""
    places = unpack_integers(name, data, rows)
    highest = int(places.max(initial=-1))
    if highest >= len(things):
        raise MessageError(f"{name}: index {highest} is not below {len(things)}")
    return places


class IntegerColumn:
    """A column of integers that are not negative; `optional` ones may be UNKNOWN."""

    def __init__(self, *, optional: bool = False) -> None:
        self._optional = optional

    def pack(self, column: Column) -> bytes:
        """Return a column as bytes, none where it is unknown throughout."""
        integers: Integers = column.astype(np.int64, copy=False)
        return b"" if self._optional and bool((integers == UNKNOWN).all()) else pack_integers(integers)

    def unpack(self, name: str, data: bytes, rows: int) -> Integers:
        """Return the column; raise MessageError."""
        if self._optional and not data:
            return np.full(rows, UNKNOWN, np.int64)
        return unpack_integers(name, data, rows, least=UNKNOWN if self._optional else 0)


class FlagColumn:
    """A column of truth values."""

    def pack(self, column: Column) -> bytes:
        """Return a column as bytes."""
        return pack_integers(column.astype(np.int64))

    def unpack(self, name: str, data: bytes, rows: int) -> Flags:
        """Return the column; raise MessageError."""
        flags: Flags = unpack_integers(name, data, rows, most=1).astype(np.bool_)
        return flags


class FloatColumn:
    """A column of floats; `default` is their value if none are sent, NaN if they may be unknown."""

    def __init__(self, *, default: float | None = None) -> None:
        self._default = default

    def pack(self, column: Column) -> bytes:
        """Return a column as bytes, none where all of it is the default."""
        return b"" if self._is_default(column) else column.astype("<f8").tobytes()

    def _is_default(self, column: Column) -> bool:
        if self._default is None:
            return False
        return bool((np.isnan(column) if np.isnan(self._default) else column == self._default).all())

    def unpack(self, name: str, data: bytes, rows: int) -> Numbers:
        """Return the column; raise MessageError."""
        if self._default is not None and not data:
            return np.full(rows, self._default)
        if len(data) != _DOUBLE * rows:
            raise MessageError(f"{name} has {len(data)} bytes for {rows} rows")
        column: Numbers = np.frombuffer(data, "<f8").astype(np.float64)
        if (self._default is None or not np.isnan(self._default)) and bool(np.isnan(column).any()):
            raise MessageError(f"{name}: an entry is NaN")
        return column


class MemberColumn:
    """A column of places in a tuple of an enumeration's members, which travel as their numbers.

    `optional` ones may be UNKNOWN.
    """

    def __init__(self, members: tuple[Any, ...], descriptor: EnumDescriptor, *, optional: bool = False) -> None:
        self._enumeration = Enumeration(type(members[0]), descriptor)
        numbers = [self._enumeration.numbers[member] for member in members]
        self._numbers: NDArray[np.int64] = np.array([*numbers, 0], np.int64)  # the last, at UNKNOWN, is none
        self._optional = optional
        self._places: Integers = np.full(max(numbers) + 1, UNKNOWN, np.int64)
        self._places[numbers] = np.arange(len(numbers))
        self._known = set(numbers) | ({0} if optional else set())

    def pack(self, column: Column) -> bytes:
        """Return a column as bytes, none where it is unknown throughout."""
        places: Integers = column.astype(np.int64, copy=False)
        return b"" if self._optional and bool((places == UNKNOWN).all()) else pack_integers(self._numbers[places])

    def unpack(self, name: str, data: bytes, rows: int) -> Integers:
        """Return the column; raise MessageError, for members that are unknown here, too."""
        if self._optional and not data:
            return np.full(rows, UNKNOWN, np.int64)
        numbers = unpack_integers(name, data, rows)
        for number in np.unique(numbers).tolist():
            if number not in self._known:
                self._enumeration.member(number)
        return self._places[numbers]


def packed_columns(kind: type, leading: int, special: Mapping[str, PackedColumn[Any]]) -> dict[str, PackedColumn[Any]]:
    """Return the codecs of a dataclass's fields, except the `leading` ones: by type, or from `special`."""
    hints, names = get_type_hints(kind), [field.name for field in fields(kind)[leading:]]
    return {name: special[name] if name in special else _BY_TYPE[hints[name]] for name in names}


_BY_TYPE: Final[Mapping[Any, PackedColumn[Any]]] = {
    int: IntegerColumn(),
    int | None: IntegerColumn(optional=True),
    float: FloatColumn(),
    float | None: FloatColumn(default=np.nan),
    bool: FlagColumn(),
}
