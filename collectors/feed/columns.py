"""Flat values as columns or fields of a message, with the names of the value's own fields.

A column has an entry for each value. None is -1 in columns of integers, NaN in columns of floats and 0 in columns of
enumerations; a column without entries is unknown throughout.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from types import NoneType
from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.message import Message

from dataplane.rpc.errors import MessageError

UNKNOWN: Final = -1
"""Stands for None in columns of integers, as NaN does in those of floats."""

V = TypeVar("V")
E = TypeVar("E", bound=Enum)


class Enumeration(Generic[E]):
    """An enumeration's members and their numbers in messages; 0 is none. Names are those behind the .proto's prefix."""

    def __init__(self, kind: type[E], descriptor: EnumDescriptor) -> None:
        prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
        self.numbers = {member: descriptor.values_by_name[prefix + member.name].number for member in kind}
        self._members = {number: member for member, number in self.numbers.items()}
        self._name = descriptor.name

    def member(self, number: int) -> E:
        """Return the member of a number; raise MessageError for one that this side does not know."""
        if number not in self._members:
            raise MessageError(f"this version does not know {self._name} {number}")
        return self._members[number]


class _Column:
    """A column without unknown values: integers, truth values, text."""

    absent: int | float | None = None

    def __init__(self, name: str) -> None:
        self.name = name

    def numbers(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the entries for values."""
        return values

    def values(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Return the values of entries; raise MessageError for members of an enumeration that are unknown here."""
        return numbers

    def problem(self, numbers: Sequence[Any]) -> str | None:  # noqa: ARG002 - protobuf has looked at the range
        """Return an invalid entry, None if all (at least one) are valid."""
        return None

    def says_nothing(self, numbers: Sequence[Any]) -> bool:
        """Return whether all entries are unknown."""
        absent = self.absent
        # Most columns are known at once, from the first entry.
        return absent is not None and (not numbers or numbers[0] == absent) and numbers.count(absent) == len(numbers)


class _Integers(_Column):
    """A column of integers that may be None, and are not negative."""

    absent = UNKNOWN

    def numbers(self, values: Sequence[Any]) -> Sequence[Any]:
        return [UNKNOWN if value is None else value for value in values]

    def values(self, numbers: Sequence[Any]) -> Sequence[Any]:
        return [None if number == UNKNOWN else number for number in numbers]

    def problem(self, numbers: Sequence[Any]) -> str | None:
        least = min(numbers)
        return None if least >= UNKNOWN else str(least)


class _Floats(_Column):
    """A column of floats that are always known."""

    def problem(self, numbers: Sequence[Any]) -> str | None:
        return "NaN" if any(map(math.isnan, numbers)) else None


class _MaybeFloats(_Column):
    """A column of floats that may be None."""

    absent = math.nan

    def numbers(self, values: Sequence[Any]) -> Sequence[Any]:
        return [math.nan if value is None else value for value in values]

    def values(self, numbers: Sequence[Any]) -> Sequence[Any]:
        return [None if math.isnan(number) else number for number in numbers]

    def says_nothing(self, numbers: Sequence[Any]) -> bool:
        return all(map(math.isnan, numbers))


class _Members(_Column):
    """A column of members of an enumeration."""

    def __init__(self, name: str, enumeration: Enumeration[Any], *, may_be_none: bool) -> None:
        super().__init__(name)
        self._enumeration = enumeration
        self._numbers: dict[Any, int] = dict(enumeration.numbers)
        if may_be_none:
            self.absent = 0
            self._numbers[None] = 0

    def numbers(self, values: Sequence[Any]) -> Sequence[Any]:
        return [self._numbers[value] for value in values]

    def values(self, numbers: Sequence[Any]) -> Sequence[Any]:
        members = {
            number: None if number == self.absent else self._enumeration.member(number) for number in set(numbers)
        }
        return [members[number] for number in numbers]


class Columns(Generic[V]):
    """Conversion of a dataclass's values to and from columns of a message."""

    def __init__(self, kind: type[V], message: type[Message], *, others: Sequence[str] = ()) -> None:
        """Have a column for every field but `others`, which travel otherwise; KeyError if the message lacks it."""
        hints, own = get_type_hints(kind), message.DESCRIPTOR.fields_by_name
        self._name = message.DESCRIPTOR.name
        self._kind = kind
        self._order = [field.name for field in fields(kind)]  # type: ignore[arg-type]  # a dataclass
        self._columns = [_column(name, hints[name], own[name]) for name in self._order if name not in others]
        self._get = attrgetter(*(codec.name for codec in self._columns))

    def write(self, message: Message, values: Sequence[V]) -> None:
        """Put values into a message."""
        for codec, column in zip(self._columns, zip(*map(self._get, values), strict=True), strict=bool(values)):
            _put(message, codec, codec.numbers(column))

    def write_numbers(self, message: Message, numbers: Mapping[str, Sequence[Any]]) -> None:
        """Put columns, by name and as they travel, into a message."""
        for codec in self._columns:
            _put(message, codec, numbers[codec.name])

    def read(self, message: Message, count: int, **others: Sequence[object]) -> Iterator[V]:
        """Return the values of `count` rows; `others` are fields that travelled separately. Raise MessageError."""
        numbers = self.read_numbers(message, count)
        columns = {codec.name: codec.values(numbers[codec.name]) for codec in self._columns} | others
        return map(self._kind, *(columns[name] for name in self._order))

    def read_numbers(self, message: Message, count: int) -> dict[str, Sequence[Any]]:
        """Return a message's columns as they travel; raise MessageError unless each has `count` valid entries."""
        return {codec.name: self._read(codec, getattr(message, codec.name)[:], count) for codec in self._columns}

    def _read(self, codec: _Column, numbers: Sequence[Any], count: int) -> Sequence[Any]:
        if not numbers and codec.absent is not None:
            return [codec.absent] * count
        if len(numbers) != count:
            raise MessageError(f"{self._name}.{codec.name} has {len(numbers)} entries for {count} rows")
        problem = codec.problem(numbers) if count else None
        if problem is not None:
            raise MessageError(f"{self._name}.{codec.name}: an entry is {problem}")
        return numbers


def _put(message: Message, codec: _Column, numbers: Sequence[Any]) -> None:
    if not codec.says_nothing(numbers):
        getattr(message, codec.name).extend(numbers)


def _column(name: str, hint: Any, field: Any) -> _Column:  # noqa: ANN401 - a type and a descriptor have none
    (kind,) = [member for member in get_args(hint) if member is not NoneType] or [hint]
    may_be_none = NoneType in get_args(hint)
    if issubclass(kind, Enum):
        return _Members(name, Enumeration(kind, field.enum_type), may_be_none=may_be_none)
    if kind is float:
        return _MaybeFloats(name) if may_be_none else _Floats(name)
    return _Integers(name) if may_be_none else _Column(name)


def put(message: Message, value: object, names: Sequence[str]) -> None:
    """Put a value's fields into those of a message; None is left out."""
    for name in names:
        field = getattr(value, name)
        if field is not None:
            setattr(message, name, field)


def take(message: Message, names: Sequence[str]) -> list[Any]:
    """Return fields of a message, None for optional ones that are not set."""
    own = message.DESCRIPTOR.fields_by_name
    return [None if own[name].has_presence and not message.HasField(name) else getattr(message, name) for name in names]
