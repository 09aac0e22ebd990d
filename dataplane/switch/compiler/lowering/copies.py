"""Whole headers, unions and stacks: comparing, copying, moving."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dataplane.program.model import VALID
from dataplane.switch.abi import Packet
from dataplane.switch.compiler.lowering.fields import Header, header_of
from dataplane.switch.compiler.lowering.routine import BYTE, I32, I64, POINTER, Routine, u32

_REGION = ("region", "region")


def headers_equal(header: Header, other: Header) -> ir.Value:
    """Return whether both headers are valid and all fields are equal."""
    routine = header.routine
    builder = routine.builder
    equal = builder.and_(header.is_valid(), other.is_valid())
    if header.location.size:
        equal = builder.and_(
            equal, _bytes_equal(routine, header.data(), other.data(), ir.Constant(I64, header.location.size))
        )
    if header.location.length is None:
        return equal
    equal = builder.and_(equal, builder.icmp_unsigned("==", header.varbit_bits(), other.varbit_bits()))
    return builder.and_(equal, _bytes_equal(routine, header.varbit(), other.varbit(), header.varbit_bytes()))


def _bytes_equal(routine: Routine, first: ir.Value, other: ir.Value, size: ir.Value) -> ir.Value:
    memcmp = routine.emission.intrinsic("memcmp", I32, [POINTER, POINTER, I64])
    return routine.builder.icmp_unsigned("==", routine.builder.call(memcmp, [first, other, size]), u32(0))


def copy_field(target: Header, source: Header, name: str) -> None:
    """Copy a field, or the valid bit, to the same field of another packet or header."""
    if name == VALID:
        target.set_valid_byte(source.valid_byte())
    elif source.location.fields[name].spec.variable:
        copy_varbit(target, source)
    elif not copy_bytes(target, name, source, name):
        target.store(name, source.load(name), clean=True)


def copy_bytes(target: Header, name: str, source: Header, source_name: str) -> bool:
    """Copy a field that consists of whole bytes on both sides and return True; do nothing otherwise."""
    to, origin = target.aligned_bytes(name), source.aligned_bytes(source_name)
    if to is None or origin is None or to[1] != origin[1]:
        return False
    target.routine.copy(target.data(to[0]), source.data(origin[0]), to[1], _REGION)
    return True


def copy_varbit(target: Header, source: Header) -> None:
    """Copy a varbit with its length."""
    if target.location.varbit_bytes != source.location.varbit_bytes:
        raise target.routine.refuse("copying a varbit to one of another size")
    target.routine.copy(target.varbit(), source.varbit(), source.varbit_bytes(), _REGION)
    target.set_varbit_bits(source.varbit_bits())


def _copy_content(target: Header, source: Header) -> None:
    target.routine.copy(target.data(), source.data(), source.location.size, _REGION)
    if source.location.length is not None:
        copy_varbit(target, source)


def copy_header(target: Header, source: Header) -> None:
    """Copy a header with its validity; metadata stay unchanged if the source is invalid."""
    routine = target.routine
    builder = routine.builder
    with builder.if_else(source.is_valid()) as (valid, invalid):
        with valid:
            _copy_content(target, source)
            target.make_valid()
        with invalid:
            target.make_invalid()


def add_header(header: Header) -> None:
    """Make a header valid; if it was not, all its fields are set to zero and the packet grows by its length."""
    routine = header.routine
    with routine.builder.if_then(routine.builder.not_(header.is_valid())):
        routine.clear(header.data(), header.location.size)
        header.set_varbit_bits(u32(0))
        header.make_valid()
        _grow(routine, u32(header.location.size))


def remove_header(header: Header) -> None:
    """Make a header invalid; the packet shrinks by its length."""
    routine = header.routine
    with routine.builder.if_then(header.is_valid()):
        header.make_invalid()
        _grow(routine, routine.builder.neg(header.wire_bytes()))


def _grow(routine: Routine, count: ir.Value) -> None:
    length = routine.load_member(Packet, routine.packet, "packet_length")
    routine.set_packet_field("packet_length", routine.builder.add(length, count))


# ---- stacks


def rows_of(routine: Routine, stack: str) -> list[list[Header]]:
    """Return the headers of each element of a stack."""
    return [[header_of(routine, name) for name in row] for row in routine.program.rows(stack)]


def next_pointer(routine: Routine, stack: str) -> ir.Value:
    """Return where the index of the next extracted element is stored."""
    return routine.offset(routine.region, routine.layout.next_index[stack])


def copy_stack(routine: Routine, target: str, source: str) -> None:
    """Copy a stack element by element, and its next index."""
    following = routine.load(next_pointer(routine, source), I32, "region", 4)
    routine.store(following, next_pointer(routine, target), "region", 4)
    for to, origin in zip(rows_of(routine, target), rows_of(routine, source), strict=True):
        for destination, other in zip(to, origin, strict=True):
            copy_header(destination, other)


def push(routine: Routine, stack: str, count: int) -> None:
    """Move a stack's elements up; the first ones become invalid."""
    rows = rows_of(routine, stack)
    following = routine.load(next_pointer(routine, stack), I32, "region", 4)
    moved = routine.builder.add(following, u32(min(count, len(rows))))
    most = u32(len(rows))
    beyond = routine.builder.icmp_unsigned(">", moved, most)
    routine.store(routine.builder.select(beyond, most, moved), next_pointer(routine, stack), "region", 4)
    for position in range(len(rows) - 1, count - 1, -1):
        _exchange(rows[position], rows[position - count])
    _free(rows[:count])


def pop(routine: Routine, stack: str, count: int) -> None:
    """Move a stack's elements down; the last ones become invalid."""
    rows = rows_of(routine, stack)
    following = routine.load(next_pointer(routine, stack), I32, "region", 4)
    step = u32(min(count, len(rows)))
    below = routine.builder.icmp_unsigned("<", following, step)
    moved = routine.builder.select(below, u32(0), routine.builder.sub(following, step))
    routine.store(moved, next_pointer(routine, stack), "region", 4)
    for position in range(len(rows) - count):
        _exchange(rows[position], rows[position + count])
    _free(rows[max(0, len(rows) - count) :])


def _free(rows: Sequence[Sequence[Header]]) -> None:
    for row in rows:
        for header in row:
            header.make_invalid()


def _exchange(row: Sequence[Header], other: Sequence[Header]) -> None:
    """Swap two elements, including what invalid headers still hold."""
    for left, right in zip(row, other, strict=True):
        routine, location = left.routine, left.location
        left_valid, right_valid = left.valid_byte(), right.valid_byte()
        left.set_valid_byte(right_valid)
        right.set_valid_byte(left_valid)
        _exchange_bytes(routine, left.data(), right.data(), location.size)
        if location.length is not None:
            left_length, right_length = left.varbit_bits(), right.varbit_bits()
            left.set_varbit_bits(right_length)
            right.set_varbit_bits(left_length)
            _exchange_bytes(routine, left.varbit(), right.varbit(), location.varbit_bytes)


def _exchange_bytes(routine: Routine, first: ir.Value, other: ir.Value, size: int) -> None:
    if size == 0:
        return
    spare = routine.local(ir.ArrayType(BYTE, size))
    routine.copy(spare, first, size, ("region", "region"))
    routine.copy(first, other, size, _REGION)
    routine.copy(other, spare, size, ("region", "region"))


def truncate_packet(routine: Routine, length: ir.Value) -> None:
    """Truncate the outgoing packet to a length of 64 bits, unless it is already truncated to less."""
    builder = routine.builder
    limit = routine.packet_field("truncate")
    shorter = builder.icmp_unsigned("<", length, builder.zext(limit, I64))
    routine.set_packet_field("truncate", builder.select(shorter, builder.trunc(length, I32), limit))
