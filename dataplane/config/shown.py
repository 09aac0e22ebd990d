"""All settings of a file, one by one: value, origin (file or default), and description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from dataplane.config.described import descriptions
from dataplane.config.reading import load_document
from dataplane.config.writing import time_texts, with_times
from dataplane.config.written import time_of

DEFAULT: Final = "default"
REQUIRED: Final = "required"


@dataclass(frozen=True, slots=True)
class Setting:
    """A key, its value as plain data, its origin (`FILE:LINE`, `default` or `required`), and its description."""

    key: str
    value: Any
    origin: str
    about: str


def settings_of(path: Path, schema: type[msgspec.Struct]) -> list[Setting]:
    """Return all settings of a file; raise ConfigError with file, line and key."""
    document = load_document(path, schema)
    return list(_settings_of_value(document.value, document.raw, "", lambda key: _origin(path, document.line_of(key))))


def defaults_of(schema: type[msgspec.Struct]) -> list[Setting]:
    """Return all keys of a schema with their defaults."""
    return list(_settings_of_type(schema, ""))


def _origin(path: Path, line: int | None) -> str:
    return str(path) if line is None else f"{path}:{line}"


def _settings_of_value(value: msgspec.Struct, raw: Any, prefix: str, locate: Any) -> Iterator[Setting]:  # noqa: ANN401 - a document
    about = descriptions(type(value))
    written = raw if isinstance(raw, dict) else {}
    for field in msgspec.structs.fields(value):
        key, part = f"{prefix}{field.encode_name}", getattr(value, field.name)
        if isinstance(part, msgspec.Struct):
            yield from _settings_of_value(part, written.get(field.encode_name), f"{key}.", locate)
        else:
            origin = locate(key) if field.encode_name in written else DEFAULT
            yield Setting(key, _plain(part, field), origin, about.get(field.name, ""))


def _settings_of_type(schema: type[msgspec.Struct], prefix: str) -> Iterator[Setting]:
    about = descriptions(schema)
    for field in msgspec.structs.fields(schema):
        key = f"{prefix}{field.encode_name}"
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        nested = _section(field.type)
        if isinstance(default, msgspec.Struct):
            yield from _settings_of_value(default, None, f"{key}.", None)
        elif field.required and nested is not None:
            yield from _settings_of_type(nested, f"{key}.")
        else:
            origin = REQUIRED if field.required else DEFAULT
            yield Setting(key, None if field.required else _plain(default, field), origin, about.get(field.name, ""))


def _section(kind: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401 - any type
    info = inspect.type_info(kind)
    return info.cls if isinstance(info, inspect.StructType) else None


def _plain(value: Any, field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - a part of a document
    plain = with_times(value, msgspec.to_builtins(value, str_keys=True, enc_hook=str))
    unit = time_of(field)
    return plain if unit is None else time_texts(plain, unit)
