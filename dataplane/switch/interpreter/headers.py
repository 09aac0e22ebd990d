"""Operations on headers, unions and stacks in a packet's state: copies, validity, and shifts."""

from __future__ import annotations

from typing import TypeAlias

from dataplane.switch.interpreter.layout import PACKET_LENGTH, Fields, HeaderSlots

Row: TypeAlias = tuple[HeaderSlots, ...]
"""An element of a stack: one header, or the members of a union."""


def header_bytes(fields: Fields, slots: HeaderSlots) -> int:
    """Return the length of a header on the wire, including its varbit."""
    return slots.fixed_bytes + fields[slots.length] // 8 if slots.has_varbit else slots.fixed_bytes


def copy_slots(fields: Fields, pairs: list[tuple[int, int]]) -> None:
    """Copy single slots; a pair is (target, source)."""
    for target, source in pairs:
        fields[target] = fields[source]


def copy_header(fields: Fields, target: HeaderSlots, source: HeaderSlots) -> None:
    """Copy a header with its validity; an invalid one has no content to copy."""
    if fields[source.valid]:
        fields[target.content] = fields[source.content]
        target.make_valid(fields)
    elif not target.header.metadata:
        fields[target.valid] = 0


def copy_row(fields: Fields, target: Row, source: Row) -> None:
    """Copy a stack's element, or a union."""
    for slot, other in zip(target, source, strict=True):
        copy_header(fields, slot, other)


def add_header(fields: Fields, slots: HeaderSlots) -> None:
    """Make a header valid; all fields of a header that was invalid are set to zero."""
    if not fields[slots.valid]:
        fields[slots.content] = [0] * (slots.end - slots.base)
        slots.make_valid(fields)
        fields[PACKET_LENGTH] += header_bytes(fields, slots)


def remove_header(fields: Fields, slots: HeaderSlots) -> None:
    """Make a header invalid; its fields keep their values."""
    if fields[slots.valid]:
        fields[slots.valid] = 0
        fields[PACKET_LENGTH] -= header_bytes(fields, slots)


def push(fields: Fields, rows: tuple[Row, ...], following: int, count: int) -> None:
    """Move a stack's elements up by `count`; the first ones become invalid."""
    size = len(rows)
    fields[following] = min(size, fields[following] + count)
    for position in range(size - 1, count - 1, -1):
        _swap(fields, rows[position], rows[position - count])
    _invalidate(fields, rows[:count])


def pop(fields: Fields, rows: tuple[Row, ...], following: int, count: int) -> None:
    """Move a stack's elements down by `count`; the last ones become invalid."""
    size = len(rows)
    fields[following] = max(0, fields[following] - count)
    for position in range(size - count):
        _swap(fields, rows[position], rows[position + count])
    _invalidate(fields, rows[max(0, size - count) :])


def _invalidate(fields: Fields, rows: tuple[Row, ...]) -> None:
    """Make elements invalid, as the language requires; bmv2 omits this if they are unions."""
    for row in rows:
        for slots in row:
            fields[slots.valid] = 0


def _swap(fields: Fields, row: Row, other: Row) -> None:
    for left, right in zip(row, other, strict=True):
        fields[left.content], fields[right.content] = fields[right.content], fields[left.content]
