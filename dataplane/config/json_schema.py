"""Settings schemas as JSON schemas, for editors that complete and validate."""

from __future__ import annotations

from typing import Any

import msgspec

from dataplane.config.described import descriptions
from dataplane.config.quantities import Unit, unit_of
from dataplane.config.writing import time_texts
from dataplane.config.written import time_of


def json_schema(schema: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a settings file, with our descriptions and text for numbers with units."""
    (root,), components = msgspec.json.schema_components([schema], schema_hook=_text, ref_template="#/$defs/{name}")
    classes = _classes(schema)
    for name, definition in components.items():
        _tell(definition, classes.get(name))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **root, "$defs": components}


def _text(_: type) -> dict[str, Any]:
    """Return the schema of one of our own types in a file: text."""
    return {"type": "string"}


def _tell(definition: dict[str, Any], schema: type | None) -> None:
    fields = {} if schema is None else {field.encode_name: field for field in msgspec.structs.fields(schema)}
    about = {} if schema is None else descriptions(schema)
    for name, field in definition.get("properties", {}).items():
        own = fields.get(name)
        time, unit = None if own is None else time_of(own), unit_of(name)
        if time is not None:
            _times_as_text(field, time)
        elif unit is not None:
            _take_text(field, unit)
        sentence = about.get(name if own is None else own.name)
        if sentence is not None:
            field["description"] = sentence


def _take_text(field: dict[str, Any], unit: Unit) -> None:
    """Allow a number to be written with its unit."""
    kinds = field.get("anyOf", [field])
    if not any(kind.get("type") in {"integer", "number"} for kind in kinds) or any(
        kind.get("type") == "string" for kind in kinds
    ):
        return
    text = {"type": "string", "examples": [unit.kind.example]}
    if "anyOf" in field:
        field["anyOf"] = [*kinds, text]
        return
    number = {name: field.pop(name) for name in list(field) if name not in {"default", "description"}}
    field["anyOf"] = [number, text]


def _times_as_text(field: dict[str, Any], unit: Unit) -> None:
    """Describe a time, or several, as text with a unit."""
    for part in [*field.get("anyOf", []), *(field[key] for key in ("items", "additionalProperties") if key in field)]:
        _times_as_text(part, unit)
    if field.get("type") in {"integer", "number"}:
        for key in [key for key in field if key not in {"default", "description"}]:
            del field[key]
        units = "|".join(unit.kind.units)
        field |= {"type": "string", "pattern": rf"^\d+(\.\d+)? ?({units})$", "examples": [unit.kind.example]}
    if "default" in field:
        field["default"] = time_texts(field["default"], unit)


def _classes(schema: type) -> dict[str, type]:
    """Return the structs below a type, by their names in its JSON schema."""
    classes: dict[str, type] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(schema)]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, msgspec.inspect.StructType):
            if kind.cls.__name__ not in classes:
                classes[kind.cls.__name__] = kind.cls
                waiting += [field.type for field in kind.fields]
        elif isinstance(kind, msgspec.inspect.Type):
            parts = [getattr(kind, name, None) for name in ("type", "types", "item_type", "item_types", "value_type")]
            waiting += [member for part in parts for member in (part if isinstance(part, tuple) else (part,))]
    return classes
