"""Binds the deparser: checksums are updated, then the valid headers are written in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dataplane.program.model import Program
from dataplane.switch.interpreter.calculations import bind_update
from dataplane.switch.interpreter.headers import header_bytes
from dataplane.switch.interpreter.layout import TRUNCATE, Fields, HeaderSlots, Layout
from dataplane.switch.interpreter.primitives import Binder

Deparse: TypeAlias = Callable[[Fields, bytes], bytes]
"""(fields, payload) -> headers and payload; a truncated packet's checksums cover only its remaining payload."""
Write: TypeAlias = Callable[[Fields], bytes]


def bind_deparser(program: Program, layout: Layout, binder: Binder) -> Deparse:
    """Return a closure that serializes a packet."""
    update = bind_update(program.checksums, layout, binder.tracer)
    steps = [binder.step(primitive) for primitive in program.deparser.primitives]
    writers = [(layout.headers[name].valid, _writer(layout.headers[name])) for name in program.deparser.order]

    def deparse(fields: Fields, payload: bytes) -> bytes:
        limit = fields[TRUNCATE]
        update(fields, payload if limit >= len(payload) else payload[:limit])
        for step in steps:
            step(fields, ())
        parts = [write(fields) for valid, write in writers if fields[valid]]
        parts.append(payload)
        return b"".join(parts)

    return deparse


def emitted_bytes(program: Program, layout: Layout) -> Callable[[Fields], int]:
    """Return a closure that returns how many header bytes the deparser would write."""
    order = [layout.headers[name] for name in program.deparser.order]
    return lambda fields: sum(header_bytes(fields, slots) for slots in order if fields[slots.valid])


def _writer(slots: HeaderSlots) -> Write:
    if any(spec.variable or spec.signed for spec in slots.header.type.fields):
        return _general_writer(slots)
    size = slots.fixed_bytes
    parts: list[tuple[int, int]] = []
    shift = slots.header.type.fixed_bits
    for spec in slots.header.type.fields:
        shift -= spec.width_bits
        parts.append((slots.slot(spec.name), shift))

    def write(fields: Fields) -> bytes:
        value = 0
        for slot, offset in parts:  # an unsigned field never holds more than its width
            value |= fields[slot] << offset
        return value.to_bytes(size, "big")

    return write


def _general_writer(slots: HeaderSlots) -> Write:
    specs = [(slots.slot(spec.name), spec.width_bits, spec.variable) for spec in slots.header.type.fields]

    def write(fields: Fields) -> bytes:
        value = 0
        for slot, width, variable in specs:
            bits = fields[slots.length] if variable else width
            value = value << bits | fields[slot] & ((1 << bits) - 1)
        return value.to_bytes(header_bytes(fields, slots), "big")

    return write
