"""Explanations of what a schema refuses: msgspec's messages as errors that name file, line and key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from dataplane.config.quantities import Unit, time_text
from dataplane.config.suggestions import did_you_mean, nearest
from dataplane.config.written import time_of
from dataplane.errors import ConfigError

_PATH = re.compile(r" - at (?P<key>`key` in )?`(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_ANY_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_BOUND = re.compile(r"expected `(int|float)( \| null)?` (?P<sign>[<>]=?) (?P<number>\S+)")
_NUMBER = re.compile(r"expected `(int|float)( \| null)?`")
_QUOTED = re.compile(r"expected `str(?P<null> \| null)?`, got `(int|float|bool)`")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A problem that msgspec reports: `path` is its own, with `[...]` for any key; `exact` has the keys."""

    problem: str
    path: str
    exact: str

    @classmethod
    def of(cls, message: str, raw: object, convert: Callable[[object], object]) -> Refusal:
        """Return what msgspec's message says of data that `convert` refuses."""
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


def explained(
    refusal: Refusal,
    root: yaml.Node | None,
    file: str,
    schema: Any,  # noqa: ANN401 - any type
    renamed: Mapping[str, str],
) -> ConfigError:
    """Return a refusal as an error with file, line and key, in a user's words; `renamed` has keys' old names."""
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
    return ConfigError(problem, file=file, line=line_in(exact, root), key=key or None)


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


def line_in(path: str, node: yaml.Node | None) -> int | None:
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
