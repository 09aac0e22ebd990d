"""Declarations seen so far while a program is read: names to values, and errors that name the place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from dataplane.errors import ProgramError
from dataplane.program.model import (
    VALID,
    Action,
    Digest,
    FieldSpec,
    Header,
    HeaderStack,
    HeaderType,
    HeaderUnion,
    Source,
    UnionStack,
)
from dataplane.program.objects import CounterSpec, MeterSpec, RegisterSpec, ValueSetSpec
from dataplane.program.operations import Calculation, FieldRef, LastFieldRef

V = TypeVar("V")

MAX_WIDTH_BITS = 1 << 16
"""The widest accepted field and longest accepted constant."""

_HEX = re.compile(r"(-?)(?:0x)?([0-9a-fA-F]+)")


@dataclass(slots=True)
class Scope:
    """Names that the rest of a file may refer to; `error` makes the exception for a JSON path such as `actions[3]`."""

    file: str
    header_types: dict[str, HeaderType] = field(default_factory=dict)
    headers: dict[str, Header] = field(default_factory=dict)
    stacks: dict[str, HeaderStack] = field(default_factory=dict)
    unions: dict[str, HeaderUnion] = field(default_factory=dict)
    union_types: dict[str, tuple[str, ...]] = field(default_factory=dict)
    union_stacks: dict[str, UnionStack] = field(default_factory=dict)
    stack_union_types: dict[str, str] = field(default_factory=dict)
    field_lists: dict[int, tuple[FieldRef, ...]] = field(default_factory=dict)
    counters: dict[str, CounterSpec] = field(default_factory=dict)
    direct_counters: dict[str, str] = field(default_factory=dict)
    read_valid_bits: set[str] = field(default_factory=set)
    """Headers whose field $valid$ something reads."""
    set_valid_bits: dict[str, str] = field(default_factory=dict)
    """Headers whose field $valid$ a parser sets, with the place."""
    registers: dict[str, RegisterSpec] = field(default_factory=dict)
    meters: dict[str, MeterSpec] = field(default_factory=dict)
    meter_targets: dict[str, FieldRef] = field(default_factory=dict)
    digests: dict[str, Digest] = field(default_factory=dict)
    digest_names: dict[int, str] = field(default_factory=dict)
    value_sets: dict[str, ValueSetSpec] = field(default_factory=dict)
    calculations: dict[str, Calculation] = field(default_factory=dict)
    actions: dict[int, Action] = field(default_factory=dict)

    def error(self, path: str, problem: str) -> ProgramError:
        """Return the error to raise for `problem` at a JSON path."""
        return ProgramError(problem, file=self.file, construct=path)

    def unsupported(self, path: str, construct: str) -> ProgramError:
        """Return the error to raise for a construct that this switch does not execute."""
        return self.error(path, f"{construct} is not supported")

    def header(self, name: object, path: str) -> Header:
        """Return the header instance of that name."""
        header = self.headers.get(name) if isinstance(name, str) else None
        if header is None:
            raise self.error(path, f"no header is called {name!r}")
        return header

    def stack(self, name: object, path: str) -> HeaderStack:
        """Return the header stack of that name."""
        stack = self.stacks.get(name) if isinstance(name, str) else None
        if stack is None:
            raise self.error(path, f"no header stack is called {name!r}")
        return stack

    def rows(self, name: str) -> tuple[tuple[Header, ...], ...]:
        """Return the headers of each element of a stack of headers or of unions."""
        if name in self.stacks:
            return tuple((self.headers[element],) for element in self.stacks[name].elements)
        unions = (self.unions[union] for union in self.union_stacks[name].unions)
        return tuple(tuple(self.headers[member] for member in union.members) for union in unions)

    def same_members(self, first: str, second: str) -> bool:
        """Return whether two unions have headers of the same types in the same order."""
        left, right = ([self.headers[name].type for name in self.unions[union].members] for union in (first, second))
        return left == right

    def member(self, stack: object, member: object, path: str) -> int:
        """Return the position of a named member in each union of a stack of unions."""
        union_stack = self.named(self.union_stacks, stack, "stack of header unions", path)
        members = self.union_types[self.stack_union_types[union_stack.name]]
        if not isinstance(member, str) or member not in members:
            raise self.error(path, f"the unions of {union_stack.name} have no header {member!r}")
        return members.index(member)

    def field(self, pair: object, path: str) -> FieldRef:
        """Return the field that a [header, field] pair names."""
        if not isinstance(pair, list) or len(pair) != 2:
            raise self.error(path, "a field is a pair of header and field name")
        header = self.header(pair[0], path)
        if not isinstance(pair[1], str) or header.type.field(pair[1]) is None:
            raise self.error(path, f"header {header.name} has no field {pair[1]!r}")
        if pair[1] == VALID:
            self.read_valid_bits.add(header.name)
        return FieldRef(header.name, pair[1])

    def spec(self, ref: FieldRef) -> FieldSpec:
        """Return width and sign of a field that `field` has returned."""
        spec = self.headers[ref.header].type.field(ref.field)
        assert spec is not None
        return spec

    def last_spec(self, ref: FieldRef | LastFieldRef) -> FieldSpec:
        """Return width and sign of a field, possibly one of a stack's last element."""
        if isinstance(ref, FieldRef):
            return self.spec(ref)
        return self.spec(FieldRef(self.rows(ref.stack)[0][ref.member].name, ref.field))

    def hexstr(self, text: object, path: str) -> int:
        """Return the integer that a hexadecimal string encodes."""
        match = _HEX.fullmatch(text) if isinstance(text, str) else None
        if match is None or len(match[2]) * 4 > MAX_WIDTH_BITS:
            raise self.error(path, f"{text!r} is not a hexadecimal string")
        value = int(match[2], 16)
        return -value if match[1] else value

    def unsigned(self, text: object, width_bits: int, path: str) -> int:
        """Return the integer that a hexadecimal string encodes, which must fit `width_bits`."""
        value = self.hexstr(text, path)
        if not 0 <= value < 1 << width_bits:
            raise self.error(path, f"{text} does not fit {width_bits} bits")
        return value

    def width(self, value: object, path: str, least: int = 1) -> int:
        """Return a width in bits, checked to be reasonable."""
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_WIDTH_BITS:
            raise self.error(path, f"a width of {value!r} bits is not possible")
        return value

    def insert(self, table: dict[str, V], name: str, value: V, path: str) -> None:
        """Add a name that must not exist yet."""
        if name in table:
            raise self.error(path, f"{name!r} is declared twice")
        table[name] = value

    def named(self, table: Mapping[str, V], name: object, what: str, path: str) -> V:
        """Return the value of a name."""
        if not isinstance(name, str) or name not in table:
            raise self.error(path, f"no {what} is called {name!r}")
        return table[name]


def read_source(raw: object) -> Source | None:
    """Return the place in a `source_info`; None if there is none, or it lacks file and line."""
    match raw:
        case {"filename": str(file), "line": int(line), **others}:
            text = others.get("source_fragment")
            return Source(file, line, text if isinstance(text, str) else "")
    return None
