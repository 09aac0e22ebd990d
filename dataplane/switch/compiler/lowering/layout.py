"""Layout of a packet's headers and metadata in its region.

Metadata are native integers, each aligned; a header's bytes are those on the wire, big-endian, without its varbit,
whose length in bits is stored separately, and whose bytes come last of all. Valid bits are bytes. The parts of a
stack's elements follow at equal distances, so that an element is found by multiplication.

A fresh packet's first `fresh_bytes` are zero; a copy's first `plain_bytes` are those of its original. In between are
headers, and after that fields, in which a fresh packet may have anything (see `uncleared`). First among those are the
fields that are cleared when a control reaches them (see `deferred`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dataplane.errors import ProgramError
from dataplane.program.model import VALID, FieldSpec, Header, HeaderType, Program
from dataplane.program.operations import FieldRef
from dataplane.switch.compiler.analysis.clear_elision import own_fields, uncleared
from dataplane.switch.compiler.analysis.deferred_clears import deferred_fields
from dataplane.switch.compiler.analysis.ranges import machine_bits

MAX_NATIVE_BITS = 512
"""Wider metadata fields are kept as bytes, since programs do not compute with them."""

SLACK_BYTES = 16
"""Space after the last field: fields are loaded and stored by whole machine integers."""

MAX_REGION_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class FieldLocation:
    """A field; `offset_bits` counts from the header's first byte; native ones start on a byte boundary."""

    spec: FieldSpec
    offset_bits: int
    native: bool


@dataclass(frozen=True, slots=True)
class HeaderLocation:
    """A header; offsets are bytes from the region's beginning. Metadata have no valid byte: they always are valid.

    `rivals` are the valid bytes of the other headers of the same union.
    """

    header: Header
    data: int
    size: int
    valid: int | None
    length: int | None
    varbit: int
    varbit_bytes: int
    fields: dict[str, FieldLocation]
    rivals: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Strides:
    """Distances between the parts of a stack's neighbouring elements, in bytes."""

    data: int
    valid: int
    length: int
    varbit: int


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes of the region."""

    start: int
    size: int


class Layout:
    """The region of a program's packets."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._end = 0
        self.headers: dict[str, HeaderLocation] = {}
        self.next_index: dict[str, int] = {}
        self.deferred: dict[str, Span] = {}
        kept = uncleared(program)
        local = _headers_beside_the_wire(program)
        own = [ref for ref in own_fields(program) if ref not in kept.fields and ref.header not in local]
        deferred = deferred_fields(program, own)
        self._elsewhere = kept.fields.union(*deferred.values())
        for header in program.headers.values():
            if header.name in local:
                self._add_local_header(header)
            elif header.metadata:
                self._add_metadata(header)
        self.metadata_bytes = self._reserve(0, 8)
        for name in (*program.stacks, *program.union_stacks):
            self.next_index[name] = self._reserve(4, 4)
        self.fresh_bytes = self._add_headers([program.headers[name] for name in _wire_order(program)], kept.headers)
        self.plain_bytes = self._reserve(0, 8)
        self._add_deferred_fields(deferred)
        self._add_unseen_fields()
        for name, location in self.headers.items():
            self.headers[name] = replace(location, varbit=self._reserve(location.varbit_bytes, 1))
        self.region_bytes = (self._end + SLACK_BYTES + 63) // 64 * 64
        if self.region_bytes > MAX_REGION_BYTES:
            raise ProgramError(f"{self._end} bytes of headers and metadata are too many", construct="headers")

    def _reserve(self, size: int, alignment: int) -> int:
        start = -(-self._end // alignment) * alignment
        self._end = start + size
        return start

    # ---- placing

    def _add_metadata(self, header: Header) -> None:
        start = self._reserve(0, 8)
        seen = [spec for spec in header.type.fields if FieldRef(header.name, spec.name) not in self._elsewhere]
        fields = {spec.name: self._native_field(spec, start) for spec in seen}
        fields[VALID] = FieldLocation(FieldSpec(VALID, 1), 0, native=True)
        size = self._reserve(0, 8) - start
        self.headers[header.name] = HeaderLocation(header, start, size, None, None, 0, 0, fields)

    def _native_field(self, spec: FieldSpec, start: int) -> FieldLocation:
        native = spec.width_bits <= MAX_NATIVE_BITS
        size = machine_bits(spec.width_bits) // 8 if native else -(-spec.width_bits // 8)
        offset_bits = 8 * (self._reserve(size, min(size, 8) if native else 1) - start)
        return FieldLocation(spec, offset_bits + (0 if native else -spec.width_bits % 8), native)

    def _add_deferred_fields(self, deferred: Mapping[str, Sequence[FieldRef]]) -> None:
        """Place fields that are cleared together side by side."""
        for node, refs in deferred.items():
            start = self._reserve(0, 8)
            for ref in refs:
                location = self.headers[ref.header]
                spec = location.header.type.field(ref.field)
                assert spec is not None
                location.fields[ref.field] = self._native_field(spec, location.data)
            self.deferred[node] = Span(start, self._reserve(0, 8) - start)

    def _add_unseen_fields(self) -> None:
        """Place the fields that are still missing from their headers."""
        for location in self.headers.values():
            for spec in location.header.type.fields:
                if spec.name not in location.fields:
                    location.fields[spec.name] = self._native_field(spec, location.data)

    def _add_local_header(self, header: Header) -> None:
        """Place metadata of a header's type in the same form as headers on the wire, so that copying moves bytes."""
        if header.type.fixed_bits % 8:
            raise ProgramError("a varbit beside a broken number of bytes is not supported", construct=header.name)
        length = None if header.type.varbit is None else self._reserve(4, 4)
        self._reserve(0, 8)
        self._add_wire_header(header, None, length, ())

    def _add_headers(self, headers: list[Header], unseen: frozenset[str]) -> int:
        """Place headers, the unseen ones last; return where these begin."""
        valids = {header.name: self._reserve(1, 1) for header in headers}
        lengths = {header.name: self._reserve(4, 4) for header in headers if header.type.varbit is not None}
        rivals = {
            name: tuple(valids[other] for other in union.members if other != name)
            for union in self.program.unions.values()
            for name in union.members
        }
        fresh_bytes = self._reserve(0, 8)
        for header in sorted(headers, key=lambda header: header.name in unseen):
            name = header.name
            self._add_wire_header(header, valids[name], lengths.get(name), rivals.get(name, ()))
            fresh_bytes = fresh_bytes if name in unseen else self._end
        return fresh_bytes

    def _add_wire_header(self, header: Header, valid: int | None, length: int | None, rivals: tuple[int, ...]) -> None:
        size = header.type.fixed_bits // 8
        varbit_bytes = (header.type.varbit.width_bits if header.type.varbit else 0) // 8
        data = self._reserve(size, 1)
        self.headers[header.name] = HeaderLocation(
            header=header,
            data=data,
            size=size,
            valid=valid,
            length=length,
            varbit=0,
            varbit_bytes=varbit_bytes,
            fields=_wire_fields(header.type),
            rivals=rivals,
        )

    # ---- finding

    def field(self, ref: FieldRef) -> FieldLocation:
        """Return the location of a field in its header."""
        return self.headers[ref.header].fields[ref.field]

    def row(self, stack: str, member: int) -> tuple[HeaderLocation, ...]:
        """Return the locations of the headers of a stack's elements, one for each (of a union the one at `member`)."""
        return tuple(self.headers[row[member]] for row in self.program.rows(stack))

    def strides(self, stack: str, member: int) -> Strides:
        """Return the distances between a stack's elements; raise ProgramError if they differ."""
        row = self.row(stack, member)
        steps = {_stride(header, other) for header, other in pairwise(row)}
        if len(steps) > 1:
            raise ProgramError("a header that is in more than one stack is not supported", construct=stack)
        return steps.pop() if steps else Strides(0, 0, 0, 0)


def _stride(header: HeaderLocation, other: HeaderLocation) -> Strides:
    lengths = 0 if header.length is None or other.length is None else other.length - header.length
    assert header.valid is not None
    assert other.valid is not None
    return Strides(other.data - header.data, other.valid - header.valid, lengths, other.varbit - header.varbit)


def _headers_beside_the_wire(program: Program) -> set[str]:
    """Return the metadata of a header's type, which are copied from and to headers."""
    wire_types = {id(header.type) for header in program.headers.values() if not header.metadata}
    return {
        name
        for name, header in program.headers.items()
        if header.metadata and (id(header.type) in wire_types or header.type.varbit is not None)
    }


def _wire_order(program: Program) -> list[str]:
    """Return the non-metadata headers, each stack's elements in sequence."""
    stacks = (*program.stacks, *program.union_stacks)
    stacked = dict.fromkeys(name for stack in stacks for row in program.rows(stack) for name in row)
    alone = [name for name, header in program.headers.items() if not header.metadata and name not in stacked]
    return alone + list(stacked)


def _wire_fields(header_type: HeaderType) -> dict[str, FieldLocation]:
    return {location.spec.name: location for location in _locations(header_type)}


def _locations(header_type: HeaderType) -> Iterator[FieldLocation]:
    offset_bits = 0
    for spec in header_type.fields:
        yield FieldLocation(spec, offset_bits, native=False)
        offset_bits += 0 if spec.variable else spec.width_bits
    yield FieldLocation(FieldSpec(VALID, 1), 0, native=True)
