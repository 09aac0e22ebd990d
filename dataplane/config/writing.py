"""Settings as documents: plain data that a file of theirs could have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from dataplane.config.quantities import Unit, time_text
from dataplane.config.written import time_of


def document_of(settings: object) -> Any:  # noqa: ANN401 - a document
    """Return settings as a document that loads as the same value; times are text, `10s`."""
    return with_times(settings, msgspec.to_builtins(settings, str_keys=True, enc_hook=str))


def with_times(value: object, document: Any) -> Any:  # noqa: ANN401 - a document
    """Return a value's plain data with times as text."""
    match value, document:
        case msgspec.Struct(), dict():
            for field in msgspec.structs.fields(value):
                key, unit = field.encode_name, time_of(field)
                if key in document:
                    part, plain = getattr(value, field.name), document[key]
                    document[key] = with_times(part, plain) if unit is None else time_texts(plain, unit)
        case ((list() | tuple()), (list() | tuple())):
            return [with_times(*pair) for pair in zip(value, document, strict=True)]
        case dict(), dict():
            return dict(zip(document, map(with_times, value.values(), document.values()), strict=True))
    return document


def time_texts(number: Any, unit: Unit) -> Any:  # noqa: ANN401 - a document
    """Return the numbers of a unit in a document, one or several, as texts."""
    match number:
        case bool():
            return number
        case int() | float():
            return time_text(number, unit)
        case list() | tuple():
            return [time_texts(part, unit) for part in number]
        case dict():
            return {key: time_texts(part, unit) for key, part in number.items()}
    return number


def by_keys(fields: Mapping[str, object], schema: type[msgspec.Struct]) -> dict[str, object]:
    """Return values under the keys of a schema's fields instead of under their names; times stay numbers."""
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(schema)}
    return {keys.get(name, name): value for name, value in fields.items()}
