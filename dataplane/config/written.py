"""Conversion of numbers written with a unit to the plain numbers that a schema requires."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import inspect

from dataplane.config.quantities import Unit, time_unit_of, unit_of

Refuse = Callable[[str, str], Exception]
"""Creates the error for a problem at a path (`$.feed.interval`)."""


def plain_numbers(raw: Any, schema: Any, refuse: Refuse, renamed: dict[str, str]) -> Any:  # noqa: ANN401 - a document, and any type
    """Return a document in which `500ms` is a number in its field's unit, where the schema requires a number.

    Keys with a unit, where the schema has one without, get their present name; `renamed` gets their paths, the present
    one to the written one. Raises the error from `refuse` for text that is no quantity, for a number without a unit
    whose key has none either, and for both names of a key.
    """
    return _Reading(refuse, renamed).plain(raw, inspect.type_info(schema), "$", None, has_unit=True)


def time_of(field: inspect.Field | msgspec.structs.FieldInfo) -> Unit | None:
    """Return the unit of a time whose key has no unit, None for any other field."""
    unit = time_unit_of(field.name)
    return unit if field.encode_name != field.name else None


class _Reading:
    def __init__(self, refuse: Refuse, renamed: dict[str, str]) -> None:
        self._refuse, self._renamed = refuse, renamed
        # A few lines of YAML's aliases can expand to more parts than memory holds: each is read once per type.
        self._read: dict[tuple[int, int, Unit | None, bool], Any] = {}

    def plain(self, raw: Any, kind: inspect.Type, path: str, unit: Unit | None, *, has_unit: bool) -> Any:  # noqa: ANN401
        """Return a part of the document; `unit` is that of its numbers, and of plain ones if `has_unit`."""
        match raw:
            case str() if unit is not None:
                return self._number(raw, kind, path, unit, has_unit=has_unit)
            case int() | float() if not has_unit and not isinstance(raw, bool):
                return self._bare(raw, path)
            case dict() | list():
                once = (id(raw), id(kind), unit, has_unit)
                if once not in self._read:
                    self._read[once] = self._parts(raw, kind, path, unit, has_unit=has_unit)
                return self._read[once]
        return raw

    def _bare(self, number: float, path: str) -> float:
        if number and math.isfinite(number):
            raise self._refuse(f"{number:g} is a time without a unit: write it as 10s, 500ms or 2m", path)
        return number

    def _number(self, text: str, kind: inspect.Type, path: str, unit: Unit, *, has_unit: bool) -> Any:  # noqa: ANN401
        members = list(_members(kind))
        # Where text is valid too, it is not meant as a number.
        if any(isinstance(member, inspect.StrType | inspect.EnumType | inspect.LiteralType) for member in members):
            return text
        try:
            if any(isinstance(member, inspect.FloatType) for member in members):
                return float(unit.parse(text, with_plain=has_unit))
            if any(isinstance(member, inspect.IntType) for member in members):
                return unit.parse_whole(text, with_plain=has_unit)
        except ValueError as error:
            raise self._refuse(str(error), path) from error
        return text

    def _parts(self, raw: Any, kind: inspect.Type, path: str, unit: Unit | None, *, has_unit: bool) -> Any:  # noqa: ANN401
        for member in _members(kind):
            match member, raw:
                case inspect.VarTupleType() | inspect.ListType(), list():
                    raw = [
                        self.plain(part, member.item_type, f"{path}[{index}]", unit, has_unit=has_unit)
                        for index, part in enumerate(raw)
                    ]
                case inspect.StructType() | inspect.DataclassType(), dict() if _is_meant(member, raw):
                    raw = self._struct(raw, member, path)
                case inspect.DictType(), dict():
                    raw = {
                        name: self.plain(part, member.value_type, f"{path}.{name}", unit, has_unit=has_unit)
                        for name, part in raw.items()
                    }
        return raw

    def _struct(
        self, raw: dict[Any, Any], kind: inspect.StructType | inspect.DataclassType, path: str
    ) -> dict[Any, Any]:
        fields = dict(raw)
        for field in kind.fields:
            key, time = field.encode_name, time_of(field)
            if time is not None and field.name in raw:
                if key in raw:
                    raise self._refuse(f"is the former name of {key}, which is given as well", f"{path}.{field.name}")
                self._renamed[f"{path}.{key}"] = f"{path}.{field.name}"
                del fields[field.name]
                fields[key] = self.plain(raw[field.name], field.type, f"{path}.{field.name}", time, has_unit=True)
            elif key in raw:
                unit = unit_of(key) if time is None else time
                fields[key] = self.plain(raw[key], field.type, f"{path}.{key}", unit, has_unit=time is None)
        return fields


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the possible types of a value."""
    if isinstance(kind, inspect.Metadata):
        yield from _members(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _members(member)
    else:
        yield kind


def _is_meant(kind: inspect.StructType | inspect.DataclassType, raw: dict[Any, Any]) -> bool:
    """Return whether a mapping is of this type, among several distinguished by a tag."""
    if isinstance(kind, inspect.DataclassType) or kind.tag_field is None:
        return True
    return raw.get(kind.tag_field) == kind.tag
