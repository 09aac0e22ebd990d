"""Conversion of numbers written with a unit to the plain numbers that a schema requires."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import inspect

from dataplane.config.quantities import Unit, unit_of

Refuse = Callable[[str, str], Exception]
"""Creates the error for a problem at a path (`$.feed.interval_ns`)."""


def plain_numbers(raw: Any, schema: Any, refuse: Refuse) -> Any:  # noqa: ANN401 - a document, and any type
    """Return a document in which `500ms` is a number in its key's unit, where the schema requires a number.

    The document is changed in place. Raises the error from `refuse` for text that is no quantity.
    """
    return _Reading(refuse).plain(raw, inspect.type_info(schema), "$", None)


class _Reading:
    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse

    def plain(self, raw: Any, kind: inspect.Type, path: str, unit: Unit | None) -> Any:  # noqa: ANN401
        """Return a part of the document; `unit` is that of its key's numbers."""
        match raw:
            case str():
                return raw if unit is None else self._number(raw, kind, path, unit)
            case dict():
                self._mapping(raw, kind, path, unit)
            case list():
                for one in _members(kind):
                    if isinstance(one, inspect.VarTupleType | inspect.ListType):
                        for place, part in enumerate(raw):
                            raw[place] = self.plain(part, one.item_type, f"{path}[{place}]", unit)
        return raw

    def _number(self, text: str, kind: inspect.Type, path: str, unit: Unit) -> Any:  # noqa: ANN401
        members = list(_members(kind))
        if any(isinstance(one, inspect.StrType | inspect.EnumType | inspect.LiteralType) for one in members):
            return text
        try:
            if any(isinstance(one, inspect.FloatType) for one in members):
                return float(unit.parse(text))
            if any(isinstance(one, inspect.IntType) for one in members):
                return unit.parse_whole(text)
        except ValueError as error:
            raise self._refuse(str(error), path) from error
        return text

    def _mapping(self, raw: dict[Any, Any], kind: inspect.Type, path: str, unit: Unit | None) -> None:
        for one in _members(kind):
            match one:
                case inspect.StructType() | inspect.DataclassType() if _is_meant(one, raw):
                    for field in one.fields:
                        name = field.encode_name
                        if name in raw:
                            raw[name] = self.plain(raw[name], field.type, f"{path}.{name}", unit_of(name))
                case inspect.DictType():
                    for name, part in raw.items():
                        raw[name] = self.plain(part, one.value_type, f"{path}.{name}", unit)


def _members(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the possible types of a value."""
    if isinstance(kind, inspect.Metadata):
        yield from _members(kind.type)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _members(one)
    else:
        yield kind


def _is_meant(kind: inspect.StructType | inspect.DataclassType, raw: dict[Any, Any]) -> bool:
    """Return whether a mapping is of this type, among several distinguished by a tag."""
    if isinstance(kind, inspect.DataclassType) or kind.tag_field is None:
        return True
    return raw.get(kind.tag_field) == kind.tag
