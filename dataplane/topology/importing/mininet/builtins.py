"""Functions and methods that interpreted programs may call, each bounded by the program's budget."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from dataplane.topology.importing.mininet.values import SCALARS, Budget, Native, RefusedError, kind_of

_WIDE: Final = re.compile(r"\d{3}|\*")
"""Widths and precisions of formats that are refused: they would make texts of any length."""
_WIDE_PERCENT: Final = re.compile(r"%[^%a-zA-Z]*(?:\d{3}|\*)")
_METHODS: Final[Mapping[type, frozenset[str]]] = {
    list: frozenset({"append", "copy", "extend", "index", "insert", "pop", "remove", "reverse"}),
    dict: frozenset({"copy", "get", "items", "keys", "pop", "setdefault", "update", "values"}),
    set: frozenset({"add", "discard", "remove", "update"}),
    str: frozenset(
        {"endswith", "format", "isdigit", "join", "lower", "replace", "split", "startswith", "strip", "upper", "zfill"}
    ),
    tuple: frozenset({"index"}),
}
_QUIET: Final = frozenset({"debug", "error", "info", "output", "setLogLevel", "warn", "warning"})
"""Functions of mininet.log, which only print."""


def functions(budget: Budget) -> dict[str, Native]:
    """Return the built-in functions by name."""
    items = budget.items

    def checked(call: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - a program's value
        for argument in arguments:
            budget.visit(argument)
        return budget.made(call(*arguments))

    def made_of(kind: Callable[..., Any], given: object = ()) -> Any:  # noqa: ANN401 - a program's value
        parts = list(given) if isinstance(given, set) and kind is sorted else items(given)
        budget.visit(parts)
        return budget.made(kind(parts))

    def as_text(value: object = "") -> str:
        return scalar_text(value)

    def counted(values: object, start: int = 0) -> list[tuple[int, Any]]:
        return list(enumerate(items(values), start))

    def ordered(values: object, *, reverse: bool = False) -> list[Any]:
        made: list[Any] = made_of(sorted, values)
        return made[::-1] if reverse else made

    def total(values: object) -> Any:  # noqa: ANN401 - a program's value
        numbers = items(values)
        if not all(isinstance(number, int | float) for number in numbers):
            raise RefusedError("sum adds up numbers only")
        return budget.made(sum(numbers))

    def dictionary(given: object = (), **named: object) -> dict[Any, Any]:
        budget.visit(given)  # before keys are hashed, which goes through all their parts
        return dict(given if isinstance(given, dict) else items(given)) | named

    named: dict[str, Callable[..., Any]] = {
        **{kind.__name__: partial(made_of, kind) for kind in (all, any, list, set, tuple)},
        **{each.__name__: partial(checked, each) for each in (abs, bool, chr, divmod, float, int, len, ord, round)},
        **{each.__name__: partial(_extreme, each, budget) for each in (min, max)},
        "dict": dictionary,
        "enumerate": counted,
        "irange": lambda first, last: range(first, last + 1),
        "print": lambda *_, **__: None,
        "range": range,
        "reversed": lambda values: items(values)[::-1],
        "sorted": ordered,
        "str": as_text,
        "sum": total,
        "xrange": range,
        "zip": lambda *groups: list(zip(*map(items, groups), strict=False)),
    }
    return {name: Native(name, call) for name, call in named.items()}


def imported(module: str, name: str, known: Mapping[str, Native]) -> Native | None:
    """Return the interpreted form of an imported function, None if there is none."""
    if module == "mininet.log" and name in _QUIET:
        return Native(name, lambda *_, **__: None)
    return known["irange"] if (module, name) == ("mininet.util", "irange") else None


def _extreme(choose: Callable[[list[Any]], Any], budget: Budget, *arguments: object) -> Any:  # noqa: ANN401 - a program's value
    values = budget.items(arguments[0]) if len(arguments) == 1 else list(arguments)
    budget.visit(values)
    return choose(values)


def method_of(value: object, name: str, budget: Budget) -> Native:
    """Return a method of a value of Python's own types; raise RefusedError if it is not interpreted."""
    if name not in _METHODS.get(type(value), ()):
        raise RefusedError(f".{name} of {kind_of(value)} is not interpreted")

    def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - a program's value
        if isinstance(value, str):
            return budget.made(_of_text(value, name, arguments, named, budget))
        if name not in {"append", "setdefault"}:  # these keep what they get
            budget.visit([*arguments, *named.values()])
        elif name == "setdefault":
            budget.visit(arguments[0])
        if name in {"index", "remove", "copy", "items", "keys", "values"}:
            budget.visit(value)
        if name in {"extend", "update"} and arguments and isinstance(arguments[0], set) and isinstance(value, list):
            budget.items(arguments[0])  # which refuses it
        made = getattr(value, name)(*arguments, **named)
        return list(made) if name in {"items", "keys", "values"} else made

    return Native(name, call)


def _of_text(text: str, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any], budget: Budget) -> object:
    if name == "format":
        return _formatted(text, arguments, named)
    if name == "join":
        (parts,) = map(budget.items, arguments)
        budget.charge(sum(len(part) for part in parts))
        return text.join(parts)
    if name == "zfill" and not 0 <= arguments[0] < 100:
        raise RefusedError("a text has too many digits")
    for argument in arguments:
        budget.visit(argument)
    return getattr(text, name)(*arguments)


def _formatted(text: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    made, number = list[str](), 0
    for literal, field, form, conversion in string.Formatter().parse(text):
        made.append(literal)
        if field is not None:
            if re.search(r"[.\[]", field):
                raise RefusedError(f"the field {field[:40]!r} of a format is not interpreted")
            key = field or str(number)
            number += not field
            value = arguments[int(key)] if key.isdecimal() else named[key]
            made.append(format_scalar(value, form or "", conversion or ""))
    return "".join(made)


def format_scalar(value: object, form: str, conversion: str) -> str:
    """Format a scalar as f-strings do; raise RefusedError for other values and for wide fields."""
    if _WIDE.search(form) or "{" in form:
        raise RefusedError(f"the format {form[:40]!r} is not interpreted")
    text = scalar_text(value)
    return format({"s": text, "r": repr(value), "a": ascii(value)}[conversion] if conversion else value, form)


def percent(text: str, values: object) -> str:
    """Format by `%`; raise RefusedError for other values than scalars and for wide fields."""
    if _WIDE_PERCENT.search(text) or (isinstance(values, dict) and _WIDE.search(text)):
        raise RefusedError("a wide field of a format is not interpreted")
    parts: Iterable[object] = values if isinstance(values, tuple) else (values,)
    if isinstance(values, dict):
        parts = values.values()
    for part in parts:
        scalar_text(part)
    return text % values


def scalar_text(value: object) -> str:
    """Return str() of a scalar; raise RefusedError for other values."""
    if not isinstance(value, SCALARS):
        raise RefusedError(f"{kind_of(value)} as text is not interpreted")
    return str(value)
