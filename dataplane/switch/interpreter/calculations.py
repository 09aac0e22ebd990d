"""Binds calculations and checksums: the concatenated bits of fields, hashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from dataplane.program.model import Checksum
from dataplane.program.operations import Calculation, CalculationInput, FieldRef, HeaderRef, Payload, SizedConstant
from dataplane.switch.interpreter.expressions import Evaluate, bind, cutter
from dataplane.switch.interpreter.hashes import bind_hash
from dataplane.switch.interpreter.layout import Fields, HeaderSlots, Layout
from dataplane.switch.interpreter.tracer import Compute, Tracer

Part: TypeAlias = Callable[[Fields], tuple[int, int]]
"""Returns value and width in bits of a header's contribution to a calculation's input."""


def bind_calculation(calculation: Calculation, layout: Layout) -> Compute:
    """Return a closure that computes a hash over fields of the valid headers and, if requested, the payload."""
    digest = bind_hash(calculation)
    parts = _parts(calculation.inputs, layout)
    with_payload = Payload() in calculation.inputs

    def compute(fields: Fields, payload: bytes) -> int:
        total, width_bits = 0, 0
        for part in parts:
            value, bits = part(fields)
            total = total << bits | value
            width_bits += bits
        padding = -width_bits % 8
        data = (total << padding).to_bytes((width_bits + padding) // 8, "big")
        return digest(data + payload) if with_payload else digest(data)

    return compute


def bind_verify(
    checksums: tuple[Checksum, ...], layout: Layout, tracer: Tracer | None = None
) -> Callable[[Fields, bytes], bool]:
    """Return a closure that checks that all checksums hold whose header is valid and whose condition is met."""
    around = None if tracer is None else tracer.verified
    bound = [_bind_checksum(item, layout, around) for item in checksums if item.verify]

    def verify(fields: Fields, payload: bytes) -> bool:
        for valid, slot, mask, condition, compute in bound:
            if fields[valid] and condition(fields, ()) and compute(fields, payload) != fields[slot] & mask:
                return False
        return True

    return verify


def bind_update(
    checksums: tuple[Checksum, ...], layout: Layout, tracer: Tracer | None = None
) -> Callable[[Fields, bytes], None]:
    """Return a closure that sets all checksums whose condition is met, in the program's order."""
    around = None if tracer is None else tracer.updated
    bound = [(_bind_checksum(item, layout, around), cutter(layout, item.target)) for item in checksums if item.update]

    def update(fields: Fields, payload: bytes) -> None:
        for (_, slot, _, condition, compute), cut in bound:
            if condition(fields, ()):
                fields[slot] = cut(compute(fields, payload))

    return update


def _bind_checksum(
    item: Checksum, layout: Layout, around: Callable[[Checksum, Compute], Compute] | None
) -> tuple[int, int, int, Evaluate, Compute]:
    target = layout.headers[item.target.header]
    mask = (1 << layout.spec(item.target).width_bits) - 1
    condition: Evaluate = (lambda _fields, _arguments: 1) if item.condition is None else bind(item.condition, layout)
    compute = bind_calculation(item.calculation, layout)
    if around is not None:
        compute = around(item, compute)
    return target.valid, layout.slot(item.target), mask, condition, compute


def _parts(inputs: tuple[CalculationInput, ...], layout: Layout) -> list[Part]:
    """Return the parts of an input; neighbouring fields of one header become one part with one validity check."""
    parts: list[Part] = []
    run: list[FieldRef] = []
    for item in (*inputs, Payload()):
        if run and not (isinstance(item, FieldRef) and item.header == run[0].header):
            parts.append(_fields_part(layout.headers[run[0].header], run, layout))
            run = []
        match item:
            case FieldRef():
                run.append(item)
            case HeaderRef(name):
                slots = layout.headers[name]
                whole = [FieldRef(name, spec.name) for spec in slots.header.type.fields]
                parts.append(_fields_part(slots, whole, layout))
            case SizedConstant(value, width_bits):
                parts.append(_constant_part(value, width_bits))
    return parts


def _constant_part(value: int, width_bits: int) -> Part:
    return lambda _fields: (value, width_bits)


def _fields_part(slots: HeaderSlots, refs: list[FieldRef], layout: Layout) -> Part:
    specs = [layout.spec(ref) for ref in refs]
    widths = [(layout.slot(ref), spec.width_bits, spec.variable) for ref, spec in zip(refs, specs, strict=True)]
    valid, length = slots.valid, slots.length
    plain = not any(spec.variable or spec.signed for spec in specs)

    def part(fields: Fields) -> tuple[int, int]:
        if not fields[valid]:
            return 0, 0
        total, width_bits = 0, 0
        for slot, width, variable in widths:
            bits = fields[length] if variable else width
            total = total << bits | fields[slot] & ((1 << bits) - 1)
            width_bits += bits
        return total, width_bits

    shifts: list[tuple[int, int]] = []
    total_bits = 0
    for slot, width, _ in reversed(widths):
        shifts.append((slot, total_bits))
        total_bits += width

    def plain_part(fields: Fields) -> tuple[int, int]:
        if not fields[valid]:
            return 0, 0
        total = 0
        for slot, offset in shifts:  # an unsigned field never holds more than its width
            total |= fields[slot] << offset
        return total, total_bits

    return plain_part if plain else part
