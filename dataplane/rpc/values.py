"""Conversion of our values to messages: fields have the same names, so no code maps them one by one.

A dataclass is a message, `X | None` an optional field, `tuple[X, ...]` a repeated one, `tuple[X, Y]` a message with its
fields in this order, `dict[str, int]` a map; an optional field that is left out has the value's default, if there is
one. Mismatches are detected when the two are matched, at import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import cache, partial
from types import NoneType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dataplane.rpc.errors import MessageError

V = TypeVar("V")
M = TypeVar("M", bound=Message)
_Convert: TypeAlias = Callable[[Any], Any]
_Descriptor: TypeAlias = Any
"""protobuf's descriptor, which differs between its C and Python implementations."""

_SCALARS: Final = {
    int: {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
    },
    str: {FieldDescriptor.CPPTYPE_STRING},
    float: {FieldDescriptor.CPPTYPE_DOUBLE},
    bool: {FieldDescriptor.CPPTYPE_BOOL},
}


class _Presence(Enum):
    """Meaning of a missing field in a message."""

    ALWAYS = auto()
    """Never missing: it is repeated, or of a kind whose absence is zero."""
    OPTIONAL = auto()
    """The value is None."""
    DEFAULT = auto()
    """The default of the value's type."""
    REQUIRED = auto()
    """The message is refused."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """One field: the conversions of its value into and out of a message, None if none is needed."""

    name: str
    pack: _Convert | None
    unpack: _Convert | None
    presence: _Presence


class Mirror(Generic[V, M]):
    """Converts values of a type to messages of a schema, and back."""

    def __init__(self, kind: type[V], schema: type[M]) -> None:
        """Match the two; raise TypeError naming the mismatch."""
        self.kind, self.schema = kind, schema
        names, hints = _parts(kind)
        fields = _matched(names, hints, schema.DESCRIPTOR)
        self._fields = tuple(_with_default(kind, field, schema.DESCRIPTOR) for field in fields)
        self._build: Callable[..., Any] = kind

    def message(self, value: V) -> M:
        """Convert a value to a message; raise MessageError for a number or a text that its field cannot hold."""
        try:
            return self.schema(**self.packed(value))
        except (ValueError, TypeError) as error:
            raise MessageError(f"{self.schema.DESCRIPTOR.full_name}: {error}") from error

    def packed(self, value: V) -> dict[str, Any]:
        """Return the contents of a value's message: nested messages are dicts, as protobuf would copy others."""
        return {
            field.name: part if field.pack is None else field.pack(part)
            for field in self._fields
            if (part := getattr(value, field.name)) is not None
        }

    def value(self, message: M) -> V:
        """Convert a message to a value; raise MessageError naming a missing required field."""
        built: V = self._build(**_unpacked(self._fields, message))
        return built


class Choice(Generic[V, M]):
    """Converts values of one of several types to messages that hold one of several, in a oneof, and back."""

    def __init__(self, kinds: Mapping[str, type[Any]], schema: type[M]) -> None:
        """Match each type with the field that is named for it; raise TypeError naming the mismatch."""
        descriptor: _Descriptor = schema.DESCRIPTOR
        if set(kinds) != set(descriptor.fields_by_name) or len(descriptor.oneofs) != 1:
            raise TypeError(
                f"{descriptor.full_name} has {sorted(descriptor.fields_by_name)}, the choice {sorted(kinds)}"
            )
        self._schema, self._name = schema, descriptor.full_name
        self._oneof = descriptor.oneofs[0].name
        schemas: dict[str, Any] = {field.name: GetMessageClass(field.message_type) for field in descriptor.fields}
        each: Mapping[str, Any] = kinds
        self._mirrors = {name: _mirror(kind, schemas[name]) for name, kind in each.items()}
        self._names = {kind: name for name, kind in kinds.items()}

    def message(self, value: V) -> M:
        """Convert a value to a message; raise MessageError for a value that its field cannot hold."""
        name = self._names[type(value)]
        return self._schema(**{name: self._mirrors[name].message(value)})

    def value(self, message: M) -> V:
        """Convert a message to a value; raise MessageError for an empty one."""
        name = message.WhichOneof(self._oneof)
        if name is None:
            raise MessageError(f"a {self._name} holds nothing that this version knows")
        value: V = self._mirrors[name].value(getattr(message, name))
        return value


class _Tuple:
    """A tuple of fixed length as a message with its fields in the same order."""

    def __init__(self, hints: tuple[Any, ...], schema: type[Message]) -> None:
        descriptor: _Descriptor = schema.DESCRIPTOR
        names = [field.name for field in sorted(descriptor.fields, key=lambda field: field.number)]
        if len(names) != len(hints):
            raise TypeError(f"{schema.DESCRIPTOR.full_name} has {len(names)} fields, the tuple {len(hints)}")
        self.schema = schema
        self._fields = _matched(names, dict(zip(names, hints, strict=True)), schema.DESCRIPTOR)

    def packed(self, value: tuple[Any, ...]) -> dict[str, Any]:
        return {
            field.name: part if field.pack is None else field.pack(part)
            for field, part in zip(self._fields, value, strict=True)
            if part is not None
        }

    def value(self, message: Message) -> tuple[Any, ...]:
        return tuple(_unpacked(self._fields, message).values())


def _unpacked(fields: tuple[_Field, ...], message: Message) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    for field in fields:
        name = field.name
        if field.presence is not _Presence.ALWAYS and not message.HasField(name):
            if field.presence is _Presence.REQUIRED:
                raise MessageError(f"{message.DESCRIPTOR.full_name} has no {name}")
            if field.presence is _Presence.OPTIONAL:
                contents[name] = None
            continue
        value = getattr(message, name)
        contents[name] = value if field.unpack is None else field.unpack(value)
    return contents


@cache
def _mirror(kind: Any, schema: Any) -> Mirror[Any, Any]:  # noqa: ANN401 - a hashable type of messages
    return Mirror(kind, schema)


def _parts(kind: type[Any]) -> tuple[list[str], dict[str, Any]]:
    return [field.name for field in dataclasses.fields(kind)], get_type_hints(kind)


def _with_default(kind: type[Any], field: _Field, descriptor: _Descriptor) -> _Field:
    has_default = kind.__dataclass_fields__[field.name].default is not dataclasses.MISSING
    may_lack = descriptor.fields_by_name[field.name].has_presence
    return dataclasses.replace(field, presence=_Presence.DEFAULT) if may_lack and has_default else field


def _matched(names: list[str], hints: dict[str, Any], descriptor: _Descriptor) -> tuple[_Field, ...]:
    if set(names) != set(descriptor.fields_by_name):
        raise TypeError(f"{descriptor.full_name} has {sorted(descriptor.fields_by_name)}, the value {sorted(names)}")
    return tuple(_field(hints[name], descriptor.fields_by_name[name]) for name in names)


def _field(hint: Any, field: FieldDescriptor) -> _Field:  # noqa: ANN401 - types have no type
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    may_lack = NoneType in get_args(hint)
    kind = kinds[0] if may_lack else hint
    is_repeated = get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis
    is_map = get_origin(kind) is dict
    if field.is_repeated is not (is_repeated or is_map) or (may_lack and not field.has_presence):
        raise TypeError(f"{field.full_name} is not of type {hint}")
    if is_map:
        return _Field(field.name, None, dict, _Presence.ALWAYS)
    pack, unpack = _converters(get_args(kind)[0] if is_repeated else kind, field)
    if is_repeated:
        return _Field(field.name, _each(list, pack), _each(tuple, unpack), _Presence.ALWAYS)
    if may_lack:
        return _Field(field.name, pack, unpack, _Presence.OPTIONAL)
    return _Field(field.name, pack, unpack, _Presence.ALWAYS if field.message_type is None else _Presence.REQUIRED)


def _converters(kind: Any, field: FieldDescriptor) -> tuple[_Convert | None, _Convert | None]:  # noqa: ANN401
    if kind in _SCALARS:
        if field.cpp_type not in _SCALARS[kind]:
            raise TypeError(f"{field.full_name} is not of type {kind}")
        return None, None
    if field.message_type is None:
        raise TypeError(f"{field.full_name} is not of type {kind}")
    schema: Any = GetMessageClass(field.message_type)
    mirror = _Tuple(get_args(kind), schema) if get_origin(kind) is tuple else _mirror(kind, schema)
    return partial(_nested, mirror), mirror.value


def _nested(mirror: Mirror[Any, Any] | _Tuple, value: Any) -> Any:  # noqa: ANN401
    """Return the contents of a nested message; an empty dict would leave it out entirely."""
    return mirror.packed(value) or mirror.schema()


def _each(build: Callable[[Any], Any], convert: _Convert | None) -> _Convert:
    return build if convert is None else partial(_converted, build, convert)


def _converted(build: Callable[[Any], Any], convert: _Convert, values: Any) -> Any:  # noqa: ANN401
    return build(map(convert, values))
