"""Strict reading of the user's YAML and TOML files into frozen values: unknown keys are errors, places are named.

A schema is a `msgspec.Struct` declared with `frozen=True, forbid_unknown_fields=True` (the base class `Strict`), or any
type that msgspec converts to. Errors name file, line (YAML) and key.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import yaml

from dataplane.errors import ConfigError

T = TypeVar("T")

_PATH = re.compile(r" - at `(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every settings value: frozen, slotted, unknown keys refused."""


@dataclass(frozen=True, slots=True)
class Document(Generic[T]):
    """A value read from text, that still knows where in the text its parts stand."""

    value: T
    file: str
    line_of: Callable[[str], int | None] = field(repr=False)

    def error(self, problem: str, path: str) -> ConfigError:
        """Return the error to raise for what stands at `path` (`links[3].rate`), whatever a schema cannot express."""
        return ConfigError(problem, file=self.file, line=self.line_of(path), key=path)


def load(path: Path, schema: type[T]) -> T:
    """Return the file's content as a `schema`; raise ConfigError with file, line and key."""
    return load_document(path, schema).value


def loads(text: str, schema: type[T], *, file: str = "<text>", toml: bool = False) -> T:
    """Return YAML (or TOML) text as a `schema`; raise ConfigError with file, line and key."""
    return loads_document(text, schema, file=file, toml=toml).value


def load_document(path: Path, schema: type[T]) -> Document[T]:
    """Return the file's content as a `schema` with its places; raise ConfigError with file, line and key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    return loads_document(text, schema, file=str(path), toml=path.suffix == ".toml")


def loads_document(text: str, schema: type[T], *, file: str = "<text>", toml: bool = False) -> Document[T]:
    """Return YAML (or TOML) text as a `schema` with its places; raise ConfigError with file, line and key."""
    root: yaml.Node | None = None
    if toml:
        raw = _parse_toml(text, file)
    else:
        root, raw = _parse_yaml(text, file)
    try:
        value = msgspec.convert(raw, type=schema, strict=True)
    except msgspec.ValidationError as error:
        raise _explain(str(error), root, file) from error
    return Document(value, file, lambda path: _line_of(f"$.{path}", root))


def _parse_toml(text: str, file: str) -> Any:  # noqa: ANN401 - a TOML document is any mapping
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(error), file=file) from error


def _parse_yaml(text: str, file: str) -> tuple[yaml.Node | None, Any]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(root, file)
        return root, yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigError(error.problem or "is not YAML", file=file, line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"is not YAML: {str(error).splitlines()[0]}", file=file) from error


def _refuse_repeated_keys(node: yaml.Node | None, file: str, visited: set[int] | None = None) -> None:
    """YAML lets a later key silently win; here it is an error.

    What aliases share is visited once: a few lines of aliases can stand for more nodes than memory holds.
    """
    visited = set() if visited is None else visited
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                raise ConfigError("appears twice", file=file, line=key.start_mark.line + 1, key=name)
            seen.add(name)
            _refuse_repeated_keys(value, file, visited)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_repeated_keys(item, file, visited)


def _explain(message: str, root: yaml.Node | None, file: str) -> ConfigError:
    found = _PATH.search(message)
    path = found["path"] if found else "$"
    problem = message[: found.start()] if found else message
    key = path.removeprefix("$").lstrip(".")
    unknown = _UNKNOWN.search(problem)
    if unknown:
        path, key = f"{path}.{unknown['name']}", f"{key}.{unknown['name']}".lstrip(".")
        problem = "unknown key"
    problem = problem.replace("Object ", "").replace("Expected `", "expected `")
    return ConfigError(problem, file=file, line=_line_of(path, root), key=key or None)


def _line_of(path: str, node: yaml.Node | None) -> int | None:
    """Return the line, counted from 1, where `path` (msgspec's `$.a[0].b`) stands, as deep as it can be followed."""
    if node is None:
        return None
    line: int = node.start_mark.line
    for name, index in _STEP.findall(path):
        if isinstance(node, yaml.MappingNode) and name:
            pair = next(((k, v) for k, v in node.value if str(k.value) == name), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line, pair[1]
        elif isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
            node = node.value[int(index)]
            line = node.start_mark.line
        else:
            break
    return line + 1
