"""A small language for selecting packets: `ipv4.dst_addr==10.0.0.2 && ingress_port==1`.

    either  = both { "||" both }
    both    = one { "&&" one }
    one     = "!" one | "(" either ")" | FIELD [COMPARISON NUMBER [ "/" LENGTH ]]

COMPARISON is == != < <= > >=. NUMBER is decimal, 0x, 0o, 0b, or an IPv4, IPv6 or MAC address; with a LENGTH only that
many leading bits are compared. A FIELD is one of the program's, `ipv4.dst_addr` (or `hdr.ipv4.dst_addr`), or of
standard_metadata by just its name; it is read once the packet is parsed, before ingress. A comparison is false if the
field's header is invalid. Just a header's name, `ipv4`, tests whether it is valid, a field's whether it is non-zero.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dataplane.errors import ConfigError
from dataplane.program.model import VALID, Program
from dataplane.program.operations import FieldRef
from dataplane.switch.interpreter.layout import Fields, Layout
from dataplane.switch.tracing.literals import read_number

_TOKEN = re.compile(r"\s*(?:(?P<sign>&&|\|\||==|!=|<=|>=|[<>!()/])|(?P<word>[\w.$\[\]:-]+))")
_COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_PREFIXES = ("hdr.", "headers.")
MOST_DEPTH = 64
"""Maximum nesting of parentheses and negations."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field against a number, both truncated to their first `length` bits if it is given."""

    field: str
    sign: str
    number: int
    length: int | None = None


@dataclass(frozen=True, slots=True)
class Named:
    """True if a header is valid, or a field is non-zero."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    inner: Condition


@dataclass(frozen=True, slots=True)
class All:
    """Every one of these."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """At least one of these."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Named | Not | All | Any
Matches: TypeAlias = Callable[[Fields], bool]
EVERYTHING = All(())
"""The condition for an empty filter."""


def parse_filter(text: str, where: str = "filter") -> Condition:
    """Return the condition for a text; raise ConfigError, in one line, if it is invalid."""
    return _Reader(text, where).condition()


def bind_filter(condition: Condition, program: Program, where: str = "filter") -> Matches:
    """Return a closure over a parsed packet's fields; raise ConfigError for a field that the program does not have."""
    return _bind(condition, Layout(program), where)


def header_name(name: str) -> str:
    """Return a name without the usual name of the struct of all headers in P4 programs."""
    return next((name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)), name)


def find_ref(name: str, program: Program, where: str) -> FieldRef:
    """Return a program's field of that name; raise ConfigError naming similar ones."""
    short = header_name(name)
    for candidate in (short, f"standard_metadata.{short}", f"scalars.{short}"):
        ref = program.find_field(candidate)
        if ref is not None:
            return ref
    header, _, field = short.rpartition(".")
    if header in program.headers:
        if program.headers[header].type.field(field) is not None:  # a header in a union, whose name has a dot
            return FieldRef(header, field)
        names = ", ".join(spec.name for spec in program.headers[header].type.fields)
        raise ConfigError(f"header {header} has no field {field!r}, but {names}", file=where)
    what = "field" if "." in short else "header or field"
    raise ConfigError(f"the program has no {what} {name!r}", file=where)


def _bind(condition: Condition, layout: Layout, where: str) -> Matches:
    match condition:
        case Comparison():
            return _bind_comparison(condition, layout, where)
        case Named(name) if header_name(name) in layout.headers:
            valid = layout.headers[header_name(name)].valid
            return lambda fields: fields[valid] != 0
        case Named(name):
            return _bind_comparison(Comparison(name, "!=", 0), layout, where)
        case Not(inner):
            opposite = _bind(inner, layout, where)
            return lambda fields: not opposite(fields)
        case All(parts):
            every = [_bind(part, layout, where) for part in parts]
            return lambda fields: all(part(fields) for part in every)
        case Any(parts):
            some = [_bind(part, layout, where) for part in parts]
            return lambda fields: any(part(fields) for part in some)


def _bind_comparison(comparison: Comparison, layout: Layout, where: str) -> Matches:
    ref = find_ref(comparison.field, layout.program, where)
    width, slot, valid = layout.spec(ref).width_bits, layout.slot(ref), layout.headers[ref.header].valid
    if comparison.number.bit_length() > width:
        problem = f"{comparison.number:#x} does not fit {comparison.field}, which has {width} bits"
        raise ConfigError(problem, file=where)
    length = comparison.length
    if length is not None and length > width:
        raise ConfigError(f"{comparison.field} has {width} bits, not {length}", file=where)
    shift = 0 if length is None else width - length
    compare, wanted = _COMPARISONS[comparison.sign], comparison.number >> shift
    if ref.field == VALID:
        return lambda fields: compare(fields[slot], wanted)
    return lambda fields: fields[valid] != 0 and compare(fields[slot] >> shift, wanted)


class _Reader:
    """Reads a filter from left to right."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where, self._depth = text, where, 0
        self._tokens: list[tuple[str, bool, int]] = []  # text, whether it is a sign, column from 1
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
                raise self._error(f"unexpected {text[column - 1]!r}", column)
            self._tokens.append((match["sign"] or match["word"], match["sign"] is not None, match.end()))
            position = match.end()
        self._next = 0

    def condition(self) -> Condition:
        if not self._tokens:
            raise self._error("is empty", 1)
        parsed = self._either()
        if self._next < len(self._tokens):
            raise self._unexpected("&& or ||")
        return parsed

    def _either(self) -> Condition:
        parts = [self._both()]
        while self._take("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Any(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._one()]
        while self._take("&&"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self._error(f"is nested more than {MOST_DEPTH} deep", 1)
        try:
            if self._take("!"):
                return Not(self._one())
            if self._take("("):
                inner = self._either()
                if not self._take(")"):
                    raise self._unexpected(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Condition:
        name = self._word("a field")
        sign = next((sign for sign in _COMPARISONS if self._take(sign)), None)
        if sign is None:
            return Named(name)
        number = self._number()
        length = self._number() if self._take("/") else None
        return Comparison(name, sign, number, length)

    def _number(self) -> int:
        text = self._word("a number or an address")
        number = read_number(text)
        if number is None or number < 0:
            self._next -= 1
            raise self._unexpected("a number or an address")
        return number

    def _take(self, sign: str) -> bool:
        if self._next < len(self._tokens) and self._tokens[self._next][:2] == (sign, True):
            self._next += 1
            return True
        return False

    def _word(self, wanted: str) -> str:
        if self._next == len(self._tokens) or self._tokens[self._next][1]:
            raise self._unexpected(wanted)
        self._next += 1
        return self._tokens[self._next - 1][0]

    def _unexpected(self, wanted: str) -> ConfigError:
        if self._next == len(self._tokens):
            return self._error(f"ends where {wanted} is expected", len(self._text) + 1)
        text, _, end = self._tokens[self._next]
        return self._error(f"has {text!r} where {wanted} is expected", end - len(text) + 1)

    def _error(self, problem: str, column: int) -> ConfigError:
        return ConfigError(f"{problem}, at column {column} of {self._text!r}", file=self._where)
