"""Emits the deparser: checksums are updated, then the valid headers are written in order."""

from __future__ import annotations

from llvmlite import ir

from dataplane.program.model import Checksum
from dataplane.program.operations import RegisterRead, RegisterWrite
from dataplane.switch.abi import Packet
from dataplane.switch.compiler.blocks.parser import bits_before_varbit
from dataplane.switch.compiler.blocks.primitives import emit_primitives
from dataplane.switch.compiler.lowering.calculations import emit_calculation, payload_size
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.routine import I32, I64, Emission, Routine, u32, u64
from dataplane.switch.compiler.lowering.varbits import put_together

NO_ROOM = 0xFFFF_FFFF
"""The deparser's result if headers and payload do not fit."""

_WORD_BYTES = 8

FAULT = 0xFFFF_FF00
"""Its result, with a `Reason` added, if a primitive or a checksum's condition faults."""


def emit_verification(routine: Routine) -> ir.Value:
    """Return whether all checksums hold whose header is valid and whose condition is met."""
    builder, expressions = routine.builder, Expressions(routine)
    wrong, done = routine.block(), routine.block()
    for item in routine.program.checksums:
        if item.verify:
            _verify_one(routine, expressions, item, wrong)
    right_end = builder.block
    builder.branch(done)
    builder.position_at_end(wrong)
    builder.branch(done)
    builder.position_at_end(done)
    holds = builder.phi(I32)
    holds.add_incoming(u32(1), right_end)
    holds.add_incoming(u32(0), wrong)
    return holds


def _verify_one(routine: Routine, expressions: Expressions, item: Checksum, wrong: ir.Block) -> None:
    builder, header = routine.builder, header_of(routine, item.target)
    following, asked, computed = routine.block(), routine.block(), routine.block()
    builder.cbranch(header.is_valid(), asked, following)
    builder.position_at_end(asked)
    if item.condition is None:
        builder.branch(computed)
    else:
        builder.cbranch(expressions.truth(item.condition), computed, following)
    builder.position_at_end(computed)
    value, field = emit_calculation(routine, item.calculation), header.load(item.target.field)
    bits = max(value.type.width, field.type.width)
    equal = builder.icmp_unsigned("==", resize(routine, value, bits), resize(routine, field, bits))
    builder.cbranch(equal, following, wrong)
    builder.position_at_end(following)


def _update(routine: Routine, expressions: Expressions) -> None:
    """Set all checksums whose condition is met; those over a payload exclude what truncation cuts off."""
    builder = routine.builder
    for item in routine.program.checksums:
        if not item.update:
            continue
        following = routine.block()
        if item.condition is not None:
            asked = routine.block()
            builder.cbranch(expressions.truth(item.condition), asked, following)
            builder.position_at_end(asked)
        value = emit_calculation(routine, item.calculation, _kept_payload(routine))
        expressions.store_value(item.target, value, 64)
        routine.go(following)


def _kept_payload(routine: Routine) -> ir.Value:
    builder = routine.builder
    whole, limit = payload_size(routine), builder.zext(routine.packet_field("truncate"), I64)
    return builder.select(builder.icmp_unsigned("<", limit, whole), limit, whole)


def emit_deparser(emission: Emission, function: ir.Function) -> None:
    """Emit the function (machine, packet, out, capacity) -> length, NO_ROOM, or FAULT + reason."""
    deparser = emission.program.deparser
    numbers = {name: number for number, name in enumerate(emission.program.registers)}
    touched = {item.register for item in deparser.primitives if isinstance(item, RegisterRead | RegisterWrite)}
    routine = Routine(emission, function, deparser.name, registers=[numbers[name] for name in touched])
    expressions, builder = Expressions(routine), routine.builder
    length = routine.local(I32)
    _update(routine, expressions)
    emit_primitives(routine, expressions, deparser.primitives)
    _write(routine, length)
    builder.branch(routine.end)
    builder.position_at_end(routine.end)
    routine.unlock(routine.held)
    outcome = builder.load(routine.outcome, typ=I32)
    fine = builder.icmp_unsigned("==", outcome, u32(0))
    builder.ret(builder.select(fine, builder.load(length, typ=I32), builder.or_(outcome, u32(FAULT))))


def _write(routine: Routine, length: ir.Value) -> None:
    """Write headers and payload if there is room, and store the number of bytes, or NO_ROOM."""
    builder = routine.builder
    out, capacity = routine.function.args[2:4]
    payload, room = payload_size(routine), builder.zext(capacity, I64)
    builder.store(u32(NO_ROOM), length)
    tight, writing = routine.block(), routine.block()
    # Usually there is room for all possible headers, so that the code need not add up the valid ones.
    most = sum(header.location.size + header.location.varbit_bytes for header in _emitted(routine))
    roomy = builder.icmp_unsigned("<=", builder.add(payload, u64(most)), room)
    builder.cbranch(roomy, writing, tight).set_weights([1 << 20, 1])
    builder.position_at_end(tight)
    total = builder.add(builder.zext(header_bytes(routine), I64), payload)
    builder.cbranch(builder.icmp_unsigned("<=", total, room), writing, routine.end)
    builder.position_at_end(writing)
    cursor = routine.local(I64)
    builder.store(u64(0), cursor)
    for headers in _runs(routine):
        with builder.if_then(_any_valid(headers)):
            for header in headers:
                with builder.if_then(header.is_valid()):
                    at = builder.load(cursor, typ=I64)
                    _write_header(header, routine.offset(out, at))
                    builder.store(builder.add(at, builder.zext(header.wire_bytes(), I64)), cursor)
    headers_end = builder.load(cursor, typ=I64)
    builder.store(builder.trunc(builder.add(headers_end, payload), I32), length)
    target = routine.offset(out, headers_end)
    parsed = builder.zext(routine.load_member(Packet, routine.packet, "parsed"), I64)
    routine.copy(target, routine.offset(routine.packet_field("data"), parsed), payload, ("frame", "frame"))


def header_bytes(routine: Routine) -> ir.Value:
    """Return the number of header bytes that would be written."""
    builder = routine.builder
    total = routine.local(I32)
    builder.store(u32(0), total)
    for headers in _runs(routine):
        with builder.if_then(_any_valid(headers)):
            size: ir.Value = builder.load(total, typ=I32)
            for header in headers:
                size = builder.add(size, builder.select(header.is_valid(), header.wire_bytes(), u32(0)))
            builder.store(size, total)
    return builder.load(total, typ=I32)


def _runs(routine: Routine) -> list[list[Header]]:
    """Return the headers in wire order, in runs whose valid bytes lie in one word.

    Programs have many headers that few packets have, so that a run is mostly skipped by one check.
    """
    runs: list[list[Header]] = []
    for header in _emitted(routine):
        if runs and _span(runs[-1]) is not None and _span([*runs[-1], header]) is not None:
            runs[-1].append(header)
        else:
            runs.append([header])
    return runs


def _emitted(routine: Routine) -> list[Header]:
    """Return the headers in wire order."""
    return [header_of(routine, name) for name in routine.program.deparser.order]


def _span(headers: list[Header]) -> tuple[int, int] | None:
    """Return the offset of the word with all valid bytes and its relevant bits, None if there is none."""
    locations = [header.location.valid for header in headers if header.location.valid is not None]
    if len(locations) < len(headers) or max(locations) - min(locations) >= _WORD_BYTES:
        return None
    return min(locations), sum(1 << 8 * (location - min(locations)) for location in set(locations))


def _any_valid(headers: list[Header]) -> ir.Value:
    span = _span(headers)
    if span is None or len(headers) == 1:
        return headers[0].is_valid()
    routine = headers[0].routine
    word = routine.load(routine.offset(routine.region, span[0]), I64, "region")
    return routine.builder.icmp_unsigned("!=", routine.builder.and_(word, u64(span[1])), u64(0))


def _write_header(header: Header, target: ir.Value) -> None:
    routine, location, kinds = header.routine, header.location, ("frame", "region")
    if location.length is None:
        routine.copy(target, header.data(), location.size, kinds)
        return
    before, count = bits_before_varbit(header), header.varbit_bytes()
    if before % 8:
        arguments = [target, header.data(), header.varbit(), u64(before), count, u64(location.size)]
        routine.builder.call(routine.module.function(put_together), arguments)
        return
    routine.copy(target, header.data(), before // 8, kinds)
    varbit = routine.offset(target, before // 8)
    routine.copy(varbit, header.varbit(), count, kinds)
    routine.copy(routine.offset(varbit, count), header.data(before // 8), location.size - before // 8, kinds)
