"""Strict parsing of the user's YAML and TOML files into frozen values: unknown keys are errors, errors name locations.

A schema is a `msgspec.Struct` declared with `frozen=True, forbid_unknown_fields=True` (the base class `Strict`), or any
type that msgspec converts to. Errors name file, line (YAML) and key.
"""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec
import yaml

from dataplane.config.quantities import Unit, key_of, time_text
from dataplane.config.suggestions import did_you_mean, nearest
from dataplane.config.written import plain_numbers, time_of
from dataplane.errors import ConfigError
from dataplane.given import read_given_text

T = TypeVar("T")

LOGGER = logging.getLogger("millrace.settings")

_SURROGATE = re.compile("[\ud800-\udfff]")
_PATH = re.compile(r" - at (?P<key>`key` in )?`(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_ANY_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_BOUND = re.compile(r"expected `(int|float)( \| null)?` (?P<sign>[<>]=?) (?P<number>\S+)")
_NUMBER = re.compile(r"expected `(int|float)( \| null)?`")
_QUOTED = re.compile(r"expected `str(?P<null> \| null)?`, got `(int|float|bool)`")

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
        return ConfigError(problem, file=file, line=_line_of(path, root()), key=path.removeprefix("$").lstrip("."))

    raw = plain_numbers(raw, schema, refuse, renamed)

    def convert(raw: object) -> T:
        return msgspec.convert(raw, type=schema, strict=True, dec_hook=decode or _path)

    try:
        value = convert(raw)
    except msgspec.ValidationError as error:
        raise _explain(_Refusal.of(str(error), raw, convert), root(), file, schema, renamed) from error
    warn_of_renamed(file, renamed)

    def line_of(path: str) -> int | None:
        return _line_of(renamed.get(f"$.{path}", f"$.{path}"), root())

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


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A problem that msgspec reports: `path` is its own, with `[...]` for any key; `exact` has the keys."""

    problem: str
    path: str
    exact: str

    @classmethod
    def of(cls, message: str, raw: object, convert: Callable[[object], object]) -> _Refusal:
        match = _PATH.search(message)
        if match is None:
            return cls(message, "$", "$")

        def fails(part: object) -> bool:
            try:
                convert(part)
            except msgspec.ValidationError as error:
                return str(error) == message
            return False

        problem, path = message[: match.start()], match["path"]
        if match["key"] is None:
            return cls(problem, path, _exact(path, raw, fails))
        # Problems with a key itself are reported at its mapping.
        return cls(f"not a valid key here: {problem}", path, _exact(f"{path}[...]", raw, fails))


def _exact(path: str, raw: object, fails: Callable[[object], bool]) -> str:
    """Return a path with the keys that `[...]` stands for, found by leaving out others."""
    steps: list[object] = []
    words = ["$"]
    for name, index in _ANY_STEP.findall(path):
        step: object = name or index
        if index == "...":
            mapping = _at(raw, steps)
            if not isinstance(mapping, dict):
                return path
            keys = list(mapping)
            while len(keys) > 1:  # halves, as there may be thousands
                half = keys[: len(keys) // 2]
                is_there = fails(_with(raw, steps, {key: mapping[key] for key in half}))
                keys = half if is_there else keys[len(half) :]
            step = keys[0]
            raw = _with(raw, steps, {step: mapping[step]})
        elif index:
            step = int(index)
        steps.append(step)
        words.append(f"[{index}]" if index.isdigit() else f".{step}")
    return "".join(words)


def _at(raw: Any, steps: Iterable[object]) -> Any:  # noqa: ANN401 - a part of a document
    """Return the part of a document that some steps lead to."""
    for step in steps:
        raw = raw[step]
    return raw


def _with(raw: Any, steps: Sequence[object], part: object) -> Any:  # noqa: ANN401 - a document
    """Return a document with another part where some steps lead to."""
    if not steps:
        return part
    copied = raw.copy()
    copied[steps[0]] = _with(raw[steps[0]], steps[1:], part)
    return copied


def _explain(
    refusal: _Refusal,
    root: yaml.Node | None,
    file: str,
    schema: Any,  # noqa: ANN401 - any type
    renamed: Mapping[str, str],
) -> ConfigError:
    problem, path, exact = refusal.problem, refusal.path, refusal.exact
    unknown = _UNKNOWN.search(problem)
    if unknown:
        keys = _known_keys(schema, path)
        path, exact = f"{path}.{unknown['name']}", f"{exact}.{unknown['name']}"
        problem = f"unknown key{did_you_mean(unknown['name'], keys)}"
    elif problem.startswith("Invalid enum value"):
        problem = _wrong_choice(problem, _type_at(schema, path))
    problem = problem.replace("Object ", "").replace("Expected `", "expected `")
    if exact in renamed:
        exact = renamed[exact]
    elif (unit := _time_at(schema, path)) is not None:
        problem = _as_time(problem, unit)
    if _QUOTED.search(problem):
        example = _example_at(schema, path)
        problem = f"expected text such as {example}" if example else f"{problem}: write it in quotes"
    key = exact.removeprefix("$").lstrip(".")
    return ConfigError(problem, file=file, line=_line_of(exact, root), key=key or None)


def _time_at(schema: Any, path: str) -> Unit | None:  # noqa: ANN401 - any type
    """Return the unit of the field at msgspec's `path` if it is a time whose key has none."""
    above, _, key = path.rpartition(".")
    kind = _type_at(schema, above)
    fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
    return next((time_of(field) for field in fields if field.encode_name == key), None)


def _example_at(schema: Any, path: str) -> str:  # noqa: ANN401 - any type
    """Return an example of the text at msgspec's `path`, '' if its schema has none."""
    above, _, key = path.rpartition(".")
    kind = _type_at(schema, above)
    fields = kind.fields if isinstance(kind, msgspec.inspect.StructType) else ()
    types = [field.type for field in fields if field.encode_name == key]
    members = [
        member for kind in types for member in (kind.types if isinstance(kind, msgspec.inspect.UnionType) else [kind])
    ]
    schemas = [member.extra_json_schema or {} for member in members if isinstance(member, msgspec.inspect.Metadata)]
    return next((str(schema["examples"][0]) for schema in schemas if schema.get("examples")), "")


def _as_time(problem: str, unit: Unit) -> str:
    """Return msgspec's problem with a number as one with a time."""
    bound = _BOUND.fullmatch(problem)
    if bound is not None:
        number = float(bound["number"])
        return f"expected a time {bound['sign']} {time_text(int(number) if number.is_integer() else number, unit)}"
    return _NUMBER.sub("expected a time such as 500ms", problem)


def _line_of(path: str, node: yaml.Node | None) -> int | None:
    """Return the line, counted from 1, of `path` (msgspec's `$.a[0].b`), followed as deep as possible."""
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


def _wrong_choice(problem: str, kind: msgspec.inspect.Type | None) -> str:
    choices: list[str] = []
    if isinstance(kind, msgspec.inspect.EnumType):
        choices = [str(choice.value) for choice in kind.cls]
    elif isinstance(kind, msgspec.inspect.LiteralType):
        choices = [str(value) for value in kind.values]
    if "'" not in problem:
        return f"{problem.removeprefix('Invalid enum value').strip()} is not one of {', '.join(choices)}"
    word = problem.partition("'")[2].rstrip("'")
    near = nearest(word, choices)
    return f"{word!r} is not one of {', '.join(choices)}" + (f"; did you mean `{near}`?" if near else "")


def _known_keys(schema: Any, path: str) -> tuple[str, ...]:  # noqa: ANN401 - any type
    kind = _type_at(schema, path)
    return tuple(field.encode_name for field in kind.fields) if isinstance(kind, msgspec.inspect.StructType) else ()


def _type_at(schema: Any, path: str) -> msgspec.inspect.Type | None:  # noqa: ANN401 - any type
    """Return the type at msgspec's `path`, None unless there is exactly one."""
    kind: msgspec.inspect.Type | None = _without_null(msgspec.inspect.type_info(schema))
    for name, _ in _ANY_STEP.findall(path):
        match kind:
            case msgspec.inspect.StructType() if name:
                kind = next((_without_null(field.type) for field in kind.fields if field.encode_name == name), None)
            case msgspec.inspect.DictType() if not name:
                kind = _without_null(kind.value_type)
            case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType() if not name:
                kind = _without_null(kind.item_type)
            case _:
                return None
    return kind


def _without_null(kind: msgspec.inspect.Type) -> msgspec.inspect.Type | None:
    """Return a type without its metadata, and without a null alternative."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _without_null(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        others = [member for member in kind.types if not isinstance(member, msgspec.inspect.NoneType)]
        return _without_null(others[0]) if len(others) == 1 else None
    return kind
