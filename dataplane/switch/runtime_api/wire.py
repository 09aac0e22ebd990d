"""Encoding of the runtime API's values in Thrift messages: kinds of fields, structs as dataclasses, methods.

A struct is a dataclass whose fields carry their number and kind (`wire`); the library reads and writes them. An absent
field stays None; `check` refuses a struct without a required one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from thrift.protocol.TProtocol import TProtocolBase, TProtocolException
from thrift.Thrift import TType

R = TypeVar("R", bound="Record")


@dataclass(frozen=True, slots=True)
class Kind:
    """A wire type: the library's number, and its additional type information."""

    number: int
    detail: Any = None


BOOL = Kind(TType.BOOL)
I16 = Kind(TType.I16)
I32 = Kind(TType.I32)
I64 = Kind(TType.I64)
DOUBLE = Kind(TType.DOUBLE)
STRING = Kind(TType.STRING, "UTF8")
BINARY = Kind(TType.STRING, "BINARY")
VOID = Kind(TType.VOID)


def list_of(item: Kind) -> Kind:
    """Return the kind of a list."""
    return Kind(TType.LIST, (item.number, item.detail, False))


def map_of(key: Kind, value: Kind) -> Kind:
    """Return the kind of a map."""
    return Kind(TType.MAP, (key.number, key.detail, value.number, value.detail, False))


def struct(record: type[Record]) -> Kind:
    """Return the kind of a struct."""
    return Kind(TType.STRUCT, [record, None])


def wire(number: int, kind: Kind, *, optional: bool = False) -> Any:  # noqa: ANN401 - a dataclass's field
    """Return a field of a `Record`."""
    return field(default=None, metadata={"number": number, "kind": kind, "optional": optional})


@dataclass(slots=True)
class Record:
    """A struct of the wire."""

    def read(self, protocol: TProtocolBase) -> None:
        """Read the fields that are present; unknown ones are skipped."""
        protocol.readStruct(self, layout_of(type(self)))
        self.check()

    def write(self, protocol: TProtocolBase) -> None:
        """Send the fields that are set."""
        protocol.writeStruct(self, layout_of(type(self)))

    def check(self) -> None:
        """Raise TProtocolException if a field is missing."""
        for part in fields(self):
            if getattr(self, part.name) is None and not part.metadata["optional"]:
                raise TProtocolException(TProtocolException.INVALID_DATA, f"{type(self).__name__} without {part.name}")


_LAYOUTS: dict[type[Record], tuple[Any, ...]] = {}


def layout_of(record: type[Record]) -> tuple[Any, ...]:
    """Return the library's description of a struct."""
    cached = _LAYOUTS.get(record)
    if cached is None:
        members = {part.name: (part.metadata["number"], part.metadata["kind"]) for part in fields(record)}
        cached = _LAYOUTS[record] = layout(members)
    return cached


def layout(members: Mapping[str, tuple[int, Kind]]) -> tuple[Any, ...]:
    """Return the library's description of a struct with these fields: number and kind by name."""
    places: list[Any] = [None] * (1 + max((number for number, _ in members.values()), default=0))
    for name, (number, kind) in members.items():
        places[number] = (number, kind.number, name, kind.detail, None)
    return tuple(places)


@dataclass(frozen=True, slots=True)
class Method:
    """A call: its result, its possible error, and its arguments in order."""

    result: Kind
    error: type[Refusal] | None
    arguments: Sequence[Kind]


@dataclass(slots=True)
class RefusalRecord(Record):
    """Wire form of every refusal: a code."""

    code: int = wire(1, I32)


class Refusal(Exception):  # noqa: N818 - on the wire it is an answer like any other
    """A call is refused with a code of its kind; each kind of call has its own class."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"{type(self).__name__} {code}")
