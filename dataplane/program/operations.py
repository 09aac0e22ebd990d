"""Computations of a program: expressions, primitives and calculations, as in bmv2 JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

# ---- expressions: each node yields data (an integer), a truth value, a header or a stack


class UnaryOp(StrEnum):
    """Operators with one operand, as bmv2 JSON spells them."""

    NOT = "not"
    COMPLEMENT = "~"
    VALID = "valid"
    DATA_TO_BOOL = "d2b"
    BOOL_TO_DATA = "b2d"
    LAST_STACK_INDEX = "last_stack_index"
    SIZE_STACK = "size_stack"


class BinaryOp(StrEnum):
    """Operators with two operands, as bmv2 JSON spells them."""

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    AND = "&"
    OR = "|"
    XOR = "^"
    EQ = "=="
    NE = "!="
    GT = ">"
    GE = ">="
    LT = "<"
    LE = "<="
    LOGICAL_AND = "and"
    LOGICAL_OR = "or"
    TWO_COMP_MOD = "two_comp_mod"
    USAT_CAST = "usat_cast"
    SAT_CAST = "sat_cast"


@dataclass(frozen=True, slots=True)
class Constant:
    """An integer of any size and sign."""

    value: int


@dataclass(frozen=True, slots=True)
class Truth:
    """A literal truth value."""

    value: bool


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A field of a header instance, or its `$valid$` bit."""

    header: str
    field: str


@dataclass(frozen=True, slots=True)
class LastFieldRef:
    """A field of the most recently extracted element of a stack; `member` is the header's position in a union."""

    stack: str
    field: str
    member: int = 0


@dataclass(frozen=True, slots=True)
class ArgumentRef:
    """The run-time argument at `index` of the action that is running."""

    index: int


@dataclass(frozen=True, slots=True)
class HeaderRef:
    """A header instance."""

    name: str


@dataclass(frozen=True, slots=True)
class ElementRef:
    """The header at a run-time index of a stack."""

    stack: str
    index: Expression


@dataclass(frozen=True, slots=True)
class ElementFieldRef:
    """A field of the header at a run-time index of a stack."""

    element: ElementRef
    field: str


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator with its operand: data, truth value, header or stack, as the operator requires."""

    op: UnaryOp
    operand: Expression | AnyHeaderRef | StackRef


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator with its operands, data or truth values."""

    op: BinaryOp
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class HeadersEqual:
    """True if both headers are valid and every field is equal (or the negation, if `negated`)."""

    left: AnyHeaderRef
    right: AnyHeaderRef
    negated: bool


@dataclass(frozen=True, slots=True)
class Choice:
    """The ternary operator."""

    condition: Expression
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class StackRef:
    """A stack of headers or of header unions; `Program.rows` has its elements."""

    name: str


@dataclass(frozen=True, slots=True)
class UnionRef:
    """A header union."""

    name: str


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Bits ahead of the parser's cursor; only in a parser's set operations and keys."""

    offset_bits: int
    width_bits: int


AnyHeaderRef: TypeAlias = HeaderRef | ElementRef
LValue: TypeAlias = FieldRef | ElementFieldRef | LastFieldRef
Expression: TypeAlias = Constant | Truth | LValue | ArgumentRef | Unary | Binary | HeadersEqual | Choice


# ---- primitives


@dataclass(frozen=True, slots=True)
class Assign:
    """Set a field to data, truncated to the field's width."""

    target: LValue
    value: Expression


@dataclass(frozen=True, slots=True)
class AssignVariable:
    """Copy a varbit field with its length."""

    target: FieldRef
    source: FieldRef


@dataclass(frozen=True, slots=True)
class AssignHeader:
    """Copy a header with its validity."""

    target: AnyHeaderRef
    source: AnyHeaderRef


@dataclass(frozen=True, slots=True)
class AssignUnion:
    """Copy a header union, header by header with their validity; both unions have the same types in order."""

    target: UnionRef
    source: UnionRef


@dataclass(frozen=True, slots=True)
class AssignStack:
    """Copy a stack, element by element, and its next index."""

    target: StackRef
    source: StackRef


@dataclass(frozen=True, slots=True)
class AddHeader:
    """Make a header valid; all fields of a header that was invalid are set to zero."""

    header: AnyHeaderRef


@dataclass(frozen=True, slots=True)
class RemoveHeader:
    """Make a header invalid."""

    header: AnyHeaderRef


@dataclass(frozen=True, slots=True)
class Push:
    """Move a stack's elements up by `count`; the first ones become invalid."""

    stack: StackRef
    count: int


@dataclass(frozen=True, slots=True)
class Pop:
    """Move a stack's elements down by `count`; the last ones become invalid."""

    stack: StackRef
    count: int


@dataclass(frozen=True, slots=True)
class Count:
    """Count the packet in an indirect counter."""

    counter: str
    index: Expression


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """Copy a register cell to a field; an index out of range leaves the field unchanged."""

    target: LValue
    register: str
    index: Expression


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """Set a register cell; an index out of range does nothing."""

    register: str
    index: Expression
    value: Expression


@dataclass(frozen=True, slots=True)
class ExecuteMeter:
    """Charge the packet to a meter's cell and set a field to its colour: 0 green, 1 yellow, 2 red."""

    meter: str
    index: Expression
    target: LValue


@dataclass(frozen=True, slots=True)
class GenerateDigest:
    """Request a digest at the end of ingress, with the values that its sources have then.

    The last request of a packet counts; in egress it has no effect, as in bmv2.
    """

    digest: str


@dataclass(frozen=True, slots=True)
class Hash:
    """Set a field to `base + hash % size`."""

    target: LValue
    base: Expression
    calculation: Calculation
    size: Expression


@dataclass(frozen=True, slots=True)
class Random:
    """Set a field to a random value from `low` to `high`, inclusive."""

    target: LValue
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class MarkToDrop:
    """Set a standard_metadata_t's egress_spec to the drop port and its multicast group to zero."""

    header: str


@dataclass(frozen=True, slots=True)
class Clone:
    """Request a clone to the mirror session at the end of this pipeline, keeping the fields of a list."""

    session: Expression
    field_list: int


@dataclass(frozen=True, slots=True)
class Resubmit:
    """Request that the packet goes through ingress again as it came in."""

    field_list: int


@dataclass(frozen=True, slots=True)
class Recirculate:
    """Request that the packet goes through ingress again as it leaves egress."""

    field_list: int


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the outgoing packet to a length in bytes."""

    length_bytes: Expression


@dataclass(frozen=True, slots=True)
class LogMessage:
    """Log a text: the first piece, then each value in decimal with the piece after it."""

    pieces: tuple[str, ...]
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """P4's assert or assume: the packet cannot continue if the condition is zero."""

    condition: Expression
    assume: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """End the pipeline when the current table or call is done."""


@dataclass(frozen=True, slots=True)
class NoOp:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Jump:
    """Continue with the primitive at `target`."""

    target: int


@dataclass(frozen=True, slots=True)
class JumpIfZero:
    """Continue with the primitive at `target` if the condition is zero."""

    condition: Expression
    target: int


Primitive: TypeAlias = (
    Assign
    | AssignVariable
    | AssignHeader
    | AssignUnion
    | AssignStack
    | AddHeader
    | RemoveHeader
    | Push
    | Pop
    | Count
    | RegisterRead
    | RegisterWrite
    | ExecuteMeter
    | GenerateDigest
    | Hash
    | Random
    | MarkToDrop
    | Clone
    | Resubmit
    | Recirculate
    | Truncate
    | LogMessage
    | Check
    | Exit
    | NoOp
    | Jump
    | JumpIfZero
)


# ---- calculations


@dataclass(frozen=True, slots=True)
class SizedConstant:
    """A constant of a calculation's input."""

    value: int
    width_bits: int


@dataclass(frozen=True, slots=True)
class Payload:
    """All bytes after the parsed headers, as a calculation's input; it always comes last."""


CalculationInput: TypeAlias = FieldRef | HeaderRef | SizedConstant | Payload


@dataclass(frozen=True, slots=True)
class CrcParameters:
    """A cyclic redundancy check; `polynomial` without its highest bit, `initial` before any reflection."""

    width_bits: int
    polynomial: int
    initial: int = 0
    final_xor: int = 0
    reflect_in: bool = False
    reflect_out: bool = False


@dataclass(frozen=True, slots=True)
class Calculation:
    """A hash or checksum algorithm over the concatenated bits of fields; invalid headers are left out.

    `crc` is set for every algorithm that is a CRC, whatever its name.
    """

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]
    crc: CrcParameters | None = None
