"""Values of ours as messages: fields of the same names, so that no code mirrors them one by one.

A dataclass is a message, `X | None` an optional field, `tuple[X, ...]` a repeated one, `tuple[X, Y]` a message with its
fields in this order, `dict[str, int]` a map; an optional field that is left out has the value's default, if there is
one. What does not fit is found when the two are matched, at import.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
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
"""protobuf's, of which the C and the Python type are two."""

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


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    """One field: how its value goes into a message and comes out, None where it does so as it is."""

    name: str
    pack: _Convert | None
    unpack: _Convert | None
    may_lack: bool
    """It is None where the message does not have it."""
    must_be: bool
    """The message must have it."""
    has_default: bool = False
    """The value's type knows what it is where the message does not have it."""


class Mirror(Generic[V, M]):
    """Turns values of a type into messages of a schema, and back."""

    def __init__(self, kind: type[V], schema: type[M]) -> None:
        """Match the two; raise TypeError naming what does not fit."""
        self.kind, self.schema = kind, schema
        names, hints = _parts(kind)
        fields = _matched(names, hints, schema.DESCRIPTOR)
        self._fields = tuple(_with_default(kind, field, schema.DESCRIPTOR) for field in fields)
        self._build: Callable[..., Any] = kind

    def message(self, value: V) -> M:
        """Return a value as a message; raise MessageError for a number or a text that its field cannot hold."""
        try:
            return self.schema(**_packed(self._fields, lambda field: getattr(value, field.name)))
        except (ValueError, TypeError) as error:
            raise MessageError(f"{self.schema.DESCRIPTOR.full_name}: {error}") from error

    def value(self, message: M) -> V:
        """Return the value of a message; raise MessageError naming a field that must be there and is not."""
        fields = (field for field in self._fields if not field.has_default or message.HasField(field.name))
        built: V = self._build(**{field.name: _unpacked(field, message) for field in fields})
        return built


class Choice(Generic[V, M]):
    """Turns values of one of several types into messages that hold one of several, in a oneof, and back."""

    def __init__(self, kinds: Mapping[str, type[Any]], schema: type[M]) -> None:
        """Match each type with the field that is named for it; raise TypeError naming what does not fit."""
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
        """Return a value as a message; raise MessageError for what its field cannot hold."""
        name = self._names[type(value)]
        return self._schema(**{name: self._mirrors[name].message(value)})

    def value(self, message: M) -> V:
        """Return the value of a message; raise MessageError for one that says nothing."""
        name = message.WhichOneof(self._oneof)
        if name is None:
            raise MessageError(f"a {self._name} says nothing that this version knows")
        value: V = self._mirrors[name].value(getattr(message, name))
        return value


class _Tuple:
    """A tuple of fixed length as a message whose fields stand in its order."""

    def __init__(self, hints: tuple[Any, ...], schema: type[Message]) -> None:
        descriptor: _Descriptor = schema.DESCRIPTOR
        names = [field.name for field in sorted(descriptor.fields, key=lambda field: field.number)]
        if len(names) != len(hints):
            raise TypeError(f"{schema.DESCRIPTOR.full_name} has {len(names)} fields, the tuple {len(hints)}")
        self._schema = schema
        self._fields = _matched(names, dict(zip(names, hints, strict=True)), schema.DESCRIPTOR)

    def message(self, value: tuple[Any, ...]) -> Message:
        values = iter(value)
        return self._schema(**_packed(self._fields, lambda _: next(values)))

    def value(self, message: Message) -> tuple[Any, ...]:
        return tuple(_unpacked(field, message) for field in self._fields)


def _packed(fields: tuple[_Field, ...], get: Callable[[_Field], Any]) -> dict[str, Any]:
    return {
        field.name: value if field.pack is None else field.pack(value)
        for field in fields
        if (value := get(field)) is not None
    }


def _unpacked(field: _Field, message: Message) -> Any:  # noqa: ANN401 - what the field holds
    if (field.may_lack or field.must_be) and not message.HasField(field.name):
        if field.must_be:
            raise MessageError(f"{message.DESCRIPTOR.full_name} has no {field.name}")
        return None
    value = getattr(message, field.name)
    return value if field.unpack is None else field.unpack(value)


@cache
def _mirror(kind: Any, schema: Any) -> Mirror[Any, Any]:  # noqa: ANN401 - a type of messages, which has a hash
    return Mirror(kind, schema)


def _parts(kind: type[Any]) -> tuple[list[str], dict[str, Any]]:
    return [field.name for field in dataclasses.fields(kind)], get_type_hints(kind)


def _with_default(kind: type[Any], field: _Field, descriptor: _Descriptor) -> _Field:
    default = kind.__dataclass_fields__[field.name].default
    has_presence = descriptor.fields_by_name[field.name].has_presence
    return dataclasses.replace(field, has_default=has_presence and default is not dataclasses.MISSING)


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
        raise TypeError(f"{field.full_name} is no {hint}")
    if is_map:
        return _Field(field.name, None, dict, may_lack=False, must_be=False)
    if is_repeated:
        pack, unpack = _converters(get_args(kind)[0], field)
        return _Field(field.name, _each(list, pack), _each(tuple, unpack), may_lack=False, must_be=False)
    pack, unpack = _converters(kind, field)
    is_message = field.message_type is not None
    return _Field(field.name, pack, unpack, may_lack=may_lack, must_be=is_message and not may_lack)


def _converters(kind: Any, field: FieldDescriptor) -> tuple[_Convert | None, _Convert | None]:  # noqa: ANN401
    if kind in _SCALARS:
        if field.cpp_type not in _SCALARS[kind]:
            raise TypeError(f"{field.full_name} is no {kind}")
        return None, None
    if field.message_type is None:
        raise TypeError(f"{field.full_name} is no {kind}")
    schema: Any = GetMessageClass(field.message_type)
    if get_origin(kind) is tuple:
        paired = _Tuple(get_args(kind), schema)
        return paired.message, paired.value
    mirror = _mirror(kind, schema)
    return mirror.message, mirror.value


def _each(build: Callable[[Any], Any], convert: _Convert | None) -> _Convert:
    return build if convert is None else partial(_converted, build, convert)


def _converted(build: Callable[[Any], Any], convert: _Convert, values: Any) -> Any:  # noqa: ANN401
    return build(map(convert, values))
