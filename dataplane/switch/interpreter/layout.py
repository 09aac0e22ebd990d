"""Places everything of a packet in one flat list of integers, so that copying the list copies the packet.

First come the packet registers (bmv2's per-packet data besides headers), then metadata, then headers and stacks. A
header takes one slot per field, then its valid bit, then the length of its varbit in bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dataplane.program.model import VALID, VALID_BIT, FieldSpec, Header, Program
from dataplane.program.operations import FieldRef

Fields: TypeAlias = list[int]
"""The state of one packet."""

# The packet registers; CLONE_SESSION holds the session with bit 15 set, so that session 0 differs from none.
# DIGEST is the digest to send, counted from 1.
CLONE_SESSION, CLONE_LIST, RESUBMIT, RECIRCULATE, DIGEST, EXIT, TRUNCATE, PACKET_LENGTH, INGRESS_LENGTH = range(9)
REGISTERS = 9
PER_PACKET = slice(CLONE_SESSION, TRUNCATE + 1)
"""The registers that a clone does not inherit."""

UNLIMITED = 1 << 62
SESSION_VALID = 1 << 15


@dataclass(slots=True)
class Moment:
    """Data that primitives see besides the packet's own state: the payload, and the burst's time."""

    payload: bytes = b""
    now_us: int = 0


class PacketFault(Exception):  # noqa: N818 - not an error of the switch: it ends one packet's way
    """A packet cannot continue; `reason` is the counter under which it is dropped."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StackFault(PacketFault):
    """A header stack has no such element; in a parser this is the error StackOutOfBounds."""

    def __init__(self) -> None:
        super().__init__("stack_out_of_bounds")


class HeaderSlots:
    """The slots of one header instance: fields from `base` on, then the valid bit, then the varbit's length in bits.

    `content` are all of them; `fixed_bytes` is the length on the wire without the varbit; `rivals` are the valid bits
    of the other headers of the same union.
    """

    __slots__ = (
        "base",
        "by_name",
        "content",
        "end",
        "fixed_bytes",
        "has_varbit",
        "header",
        "length",
        "rivals",
        "valid",
    )

    def __init__(self, header: Header, base: int) -> None:
        self.header, self.base = header, base
        self.has_varbit = header.type.varbit is not None
        self.fixed_bytes = header.type.fixed_bits // 8
        self.valid = base + len(header.type.fields)
        self.length = self.valid + 1
        self.end = self.valid + (2 if self.has_varbit else 1)
        self.content = slice(base, self.end)
        self.by_name = {spec.name: base + offset for offset, spec in enumerate(header.type.fields)}
        self.by_name[VALID] = self.valid
        self.rivals: tuple[int, ...] = ()

    def make_valid(self, fields: Fields) -> None:
        """Set the valid bit; the other headers of a union become invalid."""
        fields[self.valid] = 1
        for rival in self.rivals:
            fields[rival] = 0

    def slot(self, name: str) -> int:
        """Return the slot of a field or of the valid bit."""
        return self.by_name[name]


class Layout:
    """The slots of a program; `template` is the initial state of a packet."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.headers: dict[str, HeaderSlots] = {}
        self.next_index: dict[str, int] = {}
        self._specs: dict[FieldRef, FieldSpec] = {}
        self.template: Fields = [0] * REGISTERS
        self.template[TRUNCATE] = UNLIMITED
        headers = list(program.headers.values())
        for header in headers:
            if header.metadata:
                slots = self._add(header)
                self.template[slots.valid] = 1
        self.metadata = slice(REGISTERS, len(self.template))
        for header in self._stack_order(headers):
            self._add(header)
        for union in program.unions.values():
            members = [self.headers[name] for name in union.members]
            for slots in members:
                slots.rivals = tuple(other.valid for other in members if other is not slots)
        for name in (*program.stacks, *program.union_stacks):
            self.next_index[name] = len(self.template)
            self.template.append(0)

    def _add(self, header: Header) -> HeaderSlots:
        self.headers[header.name] = slots = HeaderSlots(header, len(self.template))
        self.template += [0] * (slots.end - slots.base)
        return slots

    def _stack_order(self, headers: Sequence[Header]) -> list[Header]:
        """Return the non-metadata headers, each stack's elements in sequence."""
        stacked = [name for stack in self.program.stacks.values() for name in stack.elements]
        alone = [item for item in headers if not item.metadata and item.name not in stacked]
        return alone + [self.program.headers[name] for name in dict.fromkeys(stacked)]

    def spec(self, ref: FieldRef) -> FieldSpec:
        """Return width and sign of a field."""
        spec = self._specs.get(ref)
        if spec is None:
            fields = (*self.program.headers[ref.header].type.fields, VALID_BIT)
            self._specs |= {FieldRef(ref.header, field.name): field for field in fields}
            spec = self._specs[ref]
        return spec

    def slot(self, ref: FieldRef) -> int:
        """Return the slot of a field."""
        return self.headers[ref.header].slot(ref.field)

    def slots_of(self, refs: Sequence[FieldRef]) -> tuple[int, ...]:
        """Return the slots that hold fields; a varbit has a second one for its length."""
        slots: list[int] = []
        for ref in refs:
            slots.append(self.slot(ref))
            if self.spec(ref).variable:
                slots.append(self.headers[ref.header].length)
        return tuple(slots)

    def find(self, name: str) -> int | None:
        """Return the slot of a field by dotted name or alias; None if the program has no such field."""
        ref = self.program.find_field(name)
        return None if ref is None else self.slot(ref)

    def elements(self, stack: str) -> tuple[HeaderSlots, ...]:
        """Return the slots of a stack's elements."""
        return tuple(self.headers[name] for name in self.program.stacks[stack].elements)

    def rows(self, stack: str) -> tuple[tuple[HeaderSlots, ...], ...]:
        """Return the slots of the headers of each element of a stack of headers or of unions."""
        return tuple(tuple(self.headers[name] for name in row) for row in self.program.rows(stack))


def reset_metadata(fields: Fields, layout: Layout) -> None:
    """Set all metadata to zero."""
    fields[layout.metadata] = layout.template[layout.metadata]
