"""Emits access to state that packets share: counters, registers, meters, random numbers; and hashes to fields."""

from __future__ import annotations

from llvmlite import ir

from dataplane.native import sizeof
from dataplane.program.operations import Count, ExecuteMeter, Expression, Hash, Random, RegisterRead, RegisterWrite
from dataplane.switch.abi import Machine, MeterCell
from dataplane.switch.compiler.lowering.calculations import emit_calculation
from dataplane.switch.compiler.lowering.expressions import Expressions
from dataplane.switch.compiler.lowering.randomness import next_random
from dataplane.switch.compiler.lowering.routine import I64, Routine, integer, u64
from dataplane.switch.tables.native.meters import execute_meter


def _cell(
    routine: Routine, expressions: Expressions, index: Expression, size: int, stride: int
) -> tuple[ir.Value, ir.Value]:
    """Return the offset in bytes of an array's cell, and whether there is such a cell."""
    position, inside = expressions.index(index, size)
    return routine.builder.mul(position, u64(stride)), inside


def ingress_bytes(routine: Routine) -> ir.Value:
    """Return the packet's length as counters and meters see it, as 64 bits."""
    return routine.builder.zext(routine.packet_field("ingress_length"), I64)


def add_to(routine: Routine, pointer: ir.Value, number: ir.Value) -> None:
    """Add to a counter that other threads may add to and set."""
    added = routine.builder.atomic_rmw("add", pointer, number, "monotonic")
    added.set_metadata("tbaa", routine.emission.kind("state"))


def count_packet(routine: Routine, expressions: Expressions, primitive: Count) -> None:
    """Count the packet; an index out of range counts nothing."""
    spec, names = routine.program.counters[primitive.counter], list(routine.program.counters)
    offset, inside = _cell(routine, expressions, primitive.index, spec.size, 16)
    with routine.builder.if_then(inside):
        cell = routine.offset(routine.array_item("counters", names.index(primitive.counter)), offset)
        add_to(routine, cell, u64(1))
        add_to(routine, routine.offset(cell, 8), ingress_bytes(routine))


def _register(routine: Routine, name: str, offset: ir.Value) -> ir.Value:
    return routine.offset(routine.array_item("registers", list(routine.program.registers).index(name)), offset)


def _words(width: int) -> int:
    return (width + 63) // 64


def read_register(routine: Routine, expressions: Expressions, primitive: RegisterRead) -> None:
    """Copy a cell to a field; an index out of range leaves the field unchanged."""
    spec = routine.program.registers[primitive.register]
    words = _words(spec.width)
    offset, inside = _cell(routine, expressions, primitive.index, spec.size, 8 * words)
    with routine.builder.if_then(inside):
        value = routine.load(_register(routine, spec.name, offset), integer(64 * words), "state", 8)
        expressions.store_value(primitive.target, value, spec.width)


def write_register(routine: Routine, expressions: Expressions, primitive: RegisterWrite) -> None:
    """Set a cell; an index out of range does nothing, not even compute the value."""
    spec = routine.program.registers[primitive.register]
    words = _words(spec.width)
    offset, inside = _cell(routine, expressions, primitive.index, spec.size, 8 * words)
    with routine.builder.if_then(inside):
        value = expressions.modulo(primitive.value, spec.width)
        wide = routine.builder.zext(value, integer(64 * words)) if value.type.width < 64 * words else value
        routine.store(wide, _register(routine, spec.name, offset), "state", 8)


def meter_packet(routine: Routine, expressions: Expressions, primitive: ExecuteMeter) -> None:
    """Set a field to the colour from a meter's cell; an index out of range leaves it unchanged."""
    spec, names = routine.program.meters[primitive.meter], list(routine.program.meters)
    offset, inside = _cell(routine, expressions, primitive.index, spec.size, sizeof(MeterCell))
    with routine.builder.if_then(inside):
        cell = routine.offset(routine.array_item("meters", names.index(primitive.meter)), offset)
        expressions.store_value(primitive.target, charge_meter(routine, cell), 2)


def charge_meter(routine: Routine, cell: ir.Value) -> ir.Value:
    """Charge the packet to a meter's cell; return its colour."""
    now = routine.load_member(Machine, routine.machine, "now_us")
    return routine.builder.call(routine.module.function(execute_meter), [cell, now, ingress_bytes(routine)])


def hash_to_field(routine: Routine, expressions: Expressions, primitive: Hash) -> None:
    """Set a field to base + hash % size, modulo 2^64; a size of 0 counts as 1, and no hash reaches one from 2^64 on."""
    builder = routine.builder
    size, base = expressions.word(primitive.size), expressions.word(primitive.base)
    modulus = builder.select(builder.icmp_unsigned("==", size, u64(0)), u64(1), size)
    digest = emit_calculation(routine, primitive.calculation)
    rest = builder.select(expressions.reaches(primitive.size, 1 << 64), digest, builder.urem(digest, modulus))
    expressions.store_value(primitive.target, builder.add(rest, base), 64)


def draw_random(routine: Routine, expressions: Expressions, primitive: Random) -> None:
    """Set a field to a random value from low to high; does nothing if high is below low."""
    builder = routine.builder
    low, high = expressions.word(primitive.low), expressions.word(primitive.high)
    with builder.if_then(builder.icmp_unsigned("<=", low, high)):
        drawn = builder.call(routine.module.function(next_random), [routine.machine])
        span = builder.add(builder.sub(high, low), u64(1))
        whole = builder.icmp_unsigned("==", span, u64(0))  # all of the 2^64 values
        rest = builder.urem(drawn, builder.select(whole, u64(1), span))
        expressions.store_value(primitive.target, builder.add(low, builder.select(whole, drawn, rest)), 64)
