"""Strict parsing of the user's YAML and TOML files into frozen values: unknown keys are errors, errors name locations.

A schema is a `msgspec.Struct` declared with `frozen=True, forbid_unknown_fields=True` (the base class `Strict`), or any
type that msgspec converts to. Errors name file, line (YAML) and key.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
import yaml

from dataplane.config.quantities import key_of
from dataplane.config.refusals import Refusal, explained, line_in
from dataplane.config.written import plain_numbers
from dataplane.errors import ConfigError
from dataplane.given import read_given_text

T = TypeVar("T")

LOGGER = logging.getLogger("millrace.settings")

_SURROGATE = re.compile("[\ud800-\udfff]")

_MERGE = "<<"
"""YAML's key of merges, which its constructor writes into the nodes: they are parsed again, to keep their own lines."""

DecodeHook = Callable[[type, Any], Any]
"""Constructs values of types that msgspec does not support; raises ValueError."""


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every settings value: frozen, slotted, unknown keys refused."""


class Settings(Strict, frozen=True, rename=key_of):
    """Base of the settings of daemons: the key of a time is its field's name without the unit (`interval_ns: int`).

    Files write times with a unit, `interval: 10s`; the field's name as a key loads with a warning.
    """


@dataclass(frozen=True, slots=True)
class Document(Generic[T]):
    """A value parsed from text, with the locations of its parts."""

    value: T
    file: str
    line_of: Callable[[str], int | None] = field(repr=False)
    raw: Any = field(repr=False, default=None)
    """The text as plain data, without defaults."""

    def error(self, problem: str, path: str) -> ConfigError:
        """Return an error for the value at `path` (`links[3].rate`), for checks that a schema cannot express."""
        return ConfigError(problem, file=self.file, line=self.line_of(path), key=path)


def load(path: Path, schema: type[T]) -> T:
    """Load a file as a `schema`; raise ConfigError with file, line and key."""
    return load_document(path, schema).value


def loads(text: str, schema: type[T], *, file: str = "<text>", toml: bool = False) -> T:
    """Parse YAML (or TOML) text as a `schema`; raise ConfigError with file, line and key."""
    return loads_document(text, schema, file=file, toml=toml).value


def load_document(path: Path, schema: type[T]) -> Document[T]:
    """Load a file as a `schema` with locations; raise ConfigError with file, line and key."""
    try:
        text = read_given_text(path)
    except OSError as error:
        raise ConfigError(error.strerror or "cannot be read", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text (byte {error.start})", file=str(path)) from error
    return loads_document(text, schema, file=str(path), toml=path.suffix == ".toml", as_json=path.suffix == ".json")


def loads_document(
    text: str, schema: type[T], *, file: str = "<text>", toml: bool = False, as_json: bool = False
) -> Document[T]:
    """Parse YAML (or TOML, or JSON) text as a `schema` with locations; raise ConfigError with file, line and key.

    YAML accepts most of JSON, but not all of its numbers: 1e-9 is a string there.
    """
    if as_json:
        return _json_document(text, schema, file)
    if toml:
        return _document(_parse_toml(text, file), None, schema, file)
    root, raw = _parse_yaml(text, file)
    return _document(raw, root, schema, file)


def loads_documents(
    text: str,
    schema: type[T],
    *,
    file: str = "<text>",
    decode: DecodeHook | None = None,
    is_foreign: Callable[[object], bool] = lambda _: False,
) -> tuple[Document[T], ...]:
    """Parse each document of YAML text, skipping empty ones; raise ConfigError with the file's line and key.

    A document that `is_foreign` is not checked against the schema: its value is what YAML has.
    """
    roots, raws = _parse_all_yaml(text, file)
    pairs = ((root, raw) for root, raw in zip(roots, raws, strict=True) if raw is not None)
    return tuple(
        _document(raw, root, cast("type[T]", Any) if is_foreign(raw) else schema, file, decode) for root, raw in pairs
    )


def _document(
    raw: object, root: yaml.Node | None, schema: type[T], file: str, decode: DecodeHook | None = None
) -> Document[T]:
    return _converted(raw, lambda: root, schema, file, decode)


def _converted(
    raw: object, root: Callable[[], yaml.Node | None], schema: type[T], file: str, decode: DecodeHook | None = None
) -> Document[T]:
    renamed: dict[str, str] = {}

    def refuse(problem: str, path: str) -> ConfigError:
        return ConfigError(problem, file=file, line=line_in(path, root()), key=path.removeprefix("$").lstrip("."))

    raw = plain_numbers(raw, schema, refuse, renamed)

    def convert(raw: object) -> T:
        return msgspec.convert(raw, type=schema, strict=True, dec_hook=decode or _path)

    try:
        value = convert(raw)
    except msgspec.ValidationError as error:
        raise explained(Refusal.of(str(error), raw, convert), root(), file, schema, renamed) from error
    warn_of_renamed(file, renamed)

    def line_of(path: str) -> int | None:
        return line_in(renamed.get(f"$.{path}", f"$.{path}"), root())

    return Document(value, file, line_of, raw)


def warn_of_renamed(file: str, renamed: Mapping[str, str]) -> None:
    """Log once which keys of a file have new names: paths as `plain_numbers` returns them."""
    if renamed:
        _warn(file, ", ".join(f"{old[2:]} (now {new[2:]})" for new, old in renamed.items()))


@cache
def _warn(file: str, keys: str) -> None:
    LOGGER.warning("%s: renamed settings, whose old names load for this version only: %s", file, keys)


def _json_document(text: str, schema: type[T], file: str) -> Document[T]:
    """Like `_document`; locations are computed only on demand."""
    return _converted(_parse_json(text, file), lambda: _composed(text), schema, file)


def _parse_json(text: str, file: str) -> Any:  # noqa: ANN401 - a JSON document is anything
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            names = [name for name, _ in pairs]
            raise ConfigError("appears twice", file=file, key=next(name for name in names if names.count(name) > 1))
        return mapping

    def refuse(word: str) -> None:
        raise ConfigError(f"{word} is not a JSON number", file=file)

    try:
        # Python would accept NaN and Infinity, which JSON does not have.
        return json.loads(text, object_pairs_hook=once, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error.msg}", file=file, line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}", file=file) from error


def _composed(text: str) -> yaml.Node | None:
    """Parse text to YAML nodes, None if it is invalid: nearly all of JSON is valid."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _path(kind: type, value: Any) -> Any:  # noqa: ANN401 - msgspec's hook signature
    """Convert a file's or folder's name to a Path, if the schema has one."""
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError("expected the name of a file or folder" if kind is Path else f"{kind} cannot be read")


def _parse_toml(text: str, file: str) -> Any:  # noqa: ANN401 - a TOML document is any mapping
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(error), file=file) from error


def _parse_yaml(text: str, file: str) -> tuple[yaml.Node | None, Any]:
    with _refused_yaml(file):
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_wrong_nodes(root, file)
        return root, yaml.safe_load(text) if _MERGE in text else _value_of(root)


def _parse_all_yaml(text: str, file: str) -> tuple[list[yaml.Node], list[Any]]:
    with _refused_yaml(file):
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
        for root in roots:
            _refuse_wrong_nodes(root, file)
        return roots, list(yaml.safe_load_all(text)) if _MERGE in text else [_value_of(root) for root in roots]


def _value_of(root: yaml.Node | None) -> Any:  # noqa: ANN401 - a YAML document is anything
    return None if root is None else yaml.constructor.SafeConstructor().construct_document(root)


@contextmanager
def _refused_yaml(file: str) -> Iterator[None]:
    """Turn YAML syntax errors into a ConfigError."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise ConfigError(error.problem or "is not YAML", file=file, line=line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"is not YAML: {str(error).splitlines()[0]}", file=file) from error


def _refuse_wrong_nodes(node: yaml.Node | None, file: str, visited: set[int] | None = None) -> None:
    """Reject repeated keys, where YAML lets the later one silently win, and escapes of half a character.

    Aliased nodes are visited once: a few lines of aliases can expand to more nodes than memory holds.
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
            _refuse_wrong_nodes(key, file, visited)
            _refuse_wrong_nodes(value, file, visited)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_wrong_nodes(item, file, visited)
    elif isinstance(node, yaml.ScalarNode) and _SURROGATE.search(node.value):
        # No text of UTF-8 can hold it: what a user wrote as an escape would fail when it is sent.
        raise ConfigError("an escape of half a character", file=file, line=node.start_mark.line + 1)
