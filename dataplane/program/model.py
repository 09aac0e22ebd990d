"""A compiled P4 program as typed values, read from bmv2 JSON and P4Info by `dataplane.program.loader`.

Everything is checked on loading: names exist, expressions have the kind that their context requires, control flow has
no cycle. Whatever executes a program (the interpreter, a compiler) may rely on that. Section names follow bmv2's
docs/JSON_format.md, version 2.23.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from finsy.proto import p4i

from dataplane.program.objects import (
    ActionSpec,
    CounterSpec,
    DigestSpec,
    MeterSpec,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.program.operations import (
    Calculation,
    Expression,
    FieldRef,
    HeaderRef,
    Lookahead,
    LValue,
    Primitive,
    RegisterRead,
    RegisterWrite,
    SizedConstant,
    StackRef,
)

VALID = "$valid$"
"""The hidden one-bit field of every header that tells whether the header is valid."""

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
"""The errors of P4's core library, in the order in which bmv2 numbers those that a program leaves out."""


@dataclass(frozen=True, slots=True)
class Source:
    """A place in a P4 file: its path as passed to the compiler, the line, from 1 on, and the text that begins there.

    The compiler ends the text with ` ...` if it continues past the line.
    """

    file: str
    line: int
    text: str = ""


# ---- headers


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field of a header type; `width_bits` is the maximum width if the field is a varbit."""

    name: str
    width_bits: int
    signed: bool = False
    variable: bool = False


VALID_BIT = FieldSpec(VALID, 1)
"""The hidden field of every header."""


@dataclass(frozen=True, slots=True)
class HeaderType:
    """The fields of a header or metadata struct, in wire order; `fixed_bits` excludes a varbit."""

    name: str
    fields: tuple[FieldSpec, ...]

    @property
    def fixed_bits(self) -> int:
        """Return the width of all fields but the varbit."""
        return sum(spec.width_bits for spec in self.fields if not spec.variable)

    @property
    def varbit(self) -> FieldSpec | None:
        """Return the variable-length field, of which there is at most one."""
        return next((spec for spec in self.fields if spec.variable), None)

    def field(self, name: str) -> FieldSpec | None:
        """Return the field of that name; the hidden valid bit counts as one."""
        if name == VALID:
            return VALID_BIT
        return next((spec for spec in self.fields if spec.name == name), None)


@dataclass(frozen=True, slots=True)
class Header:
    """A header instance; metadata are always valid and never on the wire."""

    name: str
    type: HeaderType
    metadata: bool


@dataclass(frozen=True, slots=True)
class HeaderStack:
    """A header stack and the instances it consists of, lowest index first."""

    name: str
    type: HeaderType
    elements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeaderUnion:
    """Headers of which at most one is valid: making one valid invalidates the others."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnionStack:
    """A stack of header unions of one type, lowest index first."""

    name: str
    unions: tuple[str, ...]


# ---- actions and checksums


@dataclass(frozen=True, slots=True)
class Action:
    """An action with its body; p4c may compile one P4 action into several with the same name.

    `sources` are the places of its primitives in the P4 source, one each, if known.
    """

    spec: ActionSpec
    primitives: tuple[Primitive, ...]
    sources: tuple[Source | None, ...] = field(default=(), compare=False)

    @property
    def name(self) -> str:
        """Return the fully qualified name."""
        return self.spec.name

    @property
    def registers(self) -> frozenset[str]:
        """Return the registers that the action reads or writes."""
        touching = (item for item in self.primitives if isinstance(item, RegisterRead | RegisterWrite))
        return frozenset(item.register for item in touching)


@dataclass(frozen=True, slots=True)
class Checksum:
    """A field that is compared with a calculation after parsing, or set by it before deparsing."""

    name: str
    target: FieldRef
    calculation: Calculation
    condition: Expression | None
    verify: bool
    update: bool
    source: Source | None = field(default=None, compare=False)


# ---- parsers and deparsers


@dataclass(frozen=True, slots=True)
class Extract:
    """Extract a header, or the next element of a stack; `varbit_bits` is the length of its varbit.

    In a stack of unions the header is the one at position `member` of the next union.
    """

    target: HeaderRef | StackRef
    varbit_bits: Expression | None = None
    member: int = 0


@dataclass(frozen=True, slots=True)
class ParserSet:
    """Set a field in the parser."""

    target: LValue
    value: Expression | Lookahead


@dataclass(frozen=True, slots=True)
class Verify:
    """End parsing with an error code if the condition does not hold."""

    condition: Expression
    error: Expression


@dataclass(frozen=True, slots=True)
class Advance:
    """Advance the cursor by a number of bits, which must be a multiple of 8."""

    bits: Expression


ParserOp: TypeAlias = Extract | ParserSet | Verify | Advance | Primitive


@dataclass(frozen=True, slots=True)
class Transition:
    """One case of a select: key and value agree in the bits of `mask` (all of them if None)."""

    value: int
    mask: int | None
    next_state: str | None


@dataclass(frozen=True, slots=True)
class ValueSetTransition:
    """One case of a select: the key's parts are a member of a parser value set."""

    value_set: str
    next_state: str | None


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a select's key, padded to whole bytes."""

    source: LValue | Lookahead
    width_bits: int


@dataclass(frozen=True, slots=True)
class ParserState:
    """Operations, then a select: the first transition that matches, else `default` (None: parsing is done)."""

    name: str
    operations: tuple[ParserOp, ...]
    key: tuple[KeyPart, ...]
    transitions: tuple[Transition | ValueSetTransition, ...]
    default: str | None


@dataclass(frozen=True, slots=True)
class Parser:
    """A state machine by state name."""

    name: str
    initial: str | None
    states: Mapping[str, ParserState]


@dataclass(frozen=True, slots=True)
class Deparser:
    """Headers in the order in which the valid ones are written, and primitives that run before."""

    name: str
    order: tuple[str, ...]
    primitives: tuple[Primitive, ...] = ()


# ---- control flow


@dataclass(frozen=True, slots=True)
class KeySource:
    """Source of a table's key field; bits outside `mask` count as zero."""

    source: FieldRef
    mask: int | None = None


@dataclass(frozen=True, slots=True)
class TableNode:
    """The application of a table; the next node depends on hit or miss and on the action that ran.

    `miss_next` has the key None if the table has no default action: a miss runs nothing and continues there.
    A hit on a table with a direct meter sets `meter_target` to the packet's colour before the action runs.
    """

    name: str
    keys: tuple[KeySource, ...]
    actions: Mapping[str, Action]
    hit_next: Mapping[str, str | None]
    miss_next: Mapping[str | None, str | None]
    selector: Calculation | None = None
    meter_target: FieldRef | None = None
    source: Source | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ConditionNode:
    """A branch."""

    name: str
    condition: Expression
    true_next: str | None
    false_next: str | None
    source: Source | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class CallNode:
    """A call of an action with fixed arguments, outside any table visible to the control plane."""

    name: str
    action: Action
    arguments: tuple[int, ...]
    next_node: str | None
    source: Source | None = field(default=None, compare=False)


Node: TypeAlias = TableNode | ConditionNode | CallNode


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A top control block: nodes by name, free of cycles."""

    name: str
    initial: str | None
    nodes: Mapping[str, Node]


# ---- the whole program


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest with the fields that its values are read from when it is sent.

    A program that calls `digest` in two places has two of them with the same name in `spec`.
    """

    spec: DigestSpec
    sources: tuple[FieldRef | SizedConstant, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A v1model program as compiled for bmv2; `digest` identifies the files that it was read from.

    `digest` is the SHA-256 over JSON, P4Info and entries file, in hex. `tables` holds everything with entries: every
    table of the P4Info and those that the compiler made with constant entries. `actions` holds their actions: those of
    the P4Info come first. `meters` includes direct meters. The keys of `digests` are those that GenerateDigest uses,
    which are not always the names that the control plane uses.
    """

    name: str
    digest: str
    tables: Mapping[str, TableSpec]
    actions: Mapping[str, ActionSpec]
    profiles: Mapping[str, ProfileSpec]
    counters: Mapping[str, CounterSpec]
    registers: Mapping[str, RegisterSpec]
    meters: Mapping[str, MeterSpec]
    digests: Mapping[str, Digest]
    value_sets: Mapping[str, ValueSetSpec]
    p4info: p4i.P4Info = field(compare=False)
    headers: Mapping[str, Header]
    stacks: Mapping[str, HeaderStack]
    unions: Mapping[str, HeaderUnion]
    union_stacks: Mapping[str, UnionStack]
    errors: Mapping[str, int]
    aliases: Mapping[str, FieldRef]
    field_lists: Mapping[int, tuple[FieldRef, ...]]
    parser: Parser
    ingress: Pipeline
    egress: Pipeline
    deparser: Deparser
    checksums: tuple[Checksum, ...]
    source: bytes = field(default=b"", compare=False, repr=False)
    """The JSON that it was read from."""
    entries: bytes | None = field(default=None, compare=False, repr=False)
    """The WriteRequest of its entries file, if it was read with one."""

    def rows(self, stack: str) -> tuple[tuple[str, ...], ...]:
        """Return the headers of each element of a stack: one in a header stack, else a union's members in order."""
        if stack in self.stacks:
            return tuple((name,) for name in self.stacks[stack].elements)
        return tuple(self.unions[name].members for name in self.union_stacks[stack].unions)

    def find_field(self, name: str) -> FieldRef | None:
        """Return the field behind an alias or a dotted name such as `standard_metadata.egress_spec`, if any."""
        alias = self.aliases.get(name)
        if alias is not None:
            return alias
        header_name, _, field_name = name.partition(".")
        header = self.headers.get(header_name)
        if header is None or header.type.field(field_name) is None:
            return None
        return FieldRef(header_name, field_name)
