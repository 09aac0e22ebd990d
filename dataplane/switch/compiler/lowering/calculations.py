"""Emits calculations: the concatenated bits of the valid headers' fields, hashed.

Neighbouring fields of one header are a group: it counts as a whole or, if the header is invalid, not at all. An
Internet checksum over groups of whole 16-bit words is added up in place; every other input is first assembled on the
stack.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dataplane.program.operations import Calculation, FieldRef, HeaderRef, Payload, SizedConstant
from dataplane.switch.compiler.lowering.assembly import Group, assemble
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.hashing import hash_bytes, sum_words
from dataplane.switch.compiler.lowering.routine import I64, POINTER, Emission, Routine, chunks, integer, u64


def emit_calculation(routine: Routine, calculation: Calculation, payload_bytes: ir.Value | None = None) -> ir.Value:
    """Return the 64-bit value of a calculation; `payload_bytes` is how much of the payload counts, if not all."""
    emission = routine.emission
    name = f"calculation {calculation!r}"
    function = emission.helper(name, lambda: _build(emission, calculation))
    if Payload() not in calculation.inputs:
        payload_bytes = u64(0)
    elif payload_bytes is None:
        payload_bytes = payload_size(routine)
    return routine.builder.call(function, [routine.machine, routine.packet, routine.region, payload_bytes])


def payload_size(routine: Routine) -> ir.Value:
    """Return how many bytes follow the parsed headers, as 64 bits."""
    parsed, length = (routine.packet_field(name) for name in ("parsed", "length"))
    return routine.builder.zext(routine.builder.sub(length, parsed), I64)


def _build(emission: Emission, calculation: Calculation) -> ir.Function:
    symbol = f"p4_calculation_{len(emission.helpers)}"
    function = emission.declare(symbol, I64, [POINTER, POINTER, POINTER, I64], internal=True)
    routine = Routine(emission, function, f"calculation {calculation.name}", region=function.args[2])
    groups = _groups(routine, calculation)
    payload = None
    if Payload() in calculation.inputs:
        parsed = routine.builder.zext(routine.packet_field("parsed"), I64)
        payload = (routine.offset(routine.packet_field("data"), parsed), function.args[3])
    if calculation.algorithm in ("csum16", "cksum16") and _can_add_up(routine, groups):
        result = _checksum(routine, groups, payload)
    else:
        data, size = assemble(routine, groups)
        result = hash_bytes(routine, calculation, (data, size), payload)
    routine.builder.ret(result)
    routine.builder.position_at_end(routine.end)
    routine.builder.unreachable()
    return function


def _groups(routine: Routine, calculation: Calculation) -> list[Group]:
    groups: list[Group] = []
    for item in calculation.inputs:
        match item:
            case FieldRef(header, field):
                if groups and groups[-1].header == header and groups[-1].constant is None:
                    groups[-1] = Group(header, (*groups[-1].fields, field))
                else:
                    groups.append(Group(header, (field,)))
            case HeaderRef(header):
                names = tuple(spec.name for spec in routine.program.headers[header].type.fields)
                groups.append(Group(header, names))
            case SizedConstant():
                groups.append(Group(None, constant=item))
    return groups


# ---- the Internet checksum computed in place


def _can_add_up(routine: Routine, groups: Sequence[Group]) -> bool:
    """Return whether groups consist of whole 16-bit words, except that the last may be a varbit: IPv4's options."""
    first = groups[:-1] if groups and _is_varbit(routine, groups[-1]) else groups
    return all(_is_even(routine, group) for group in first)


def _is_varbit(routine: Routine, group: Group) -> bool:
    """Return whether a group is a varbit and nothing else."""
    return group.header is not None and all(
        header_of(routine, group.header).spec(name).variable for name in group.fields
    )


def _is_even(routine: Routine, group: Group) -> bool:
    """Return whether a group always has the same length, in whole 16-bit words."""
    if group.header is None:
        assert group.constant is not None
        return group.constant.width_bits % 16 == 0
    header = header_of(routine, group.header)
    specs = [header.spec(name) for name in group.fields]
    return not any(spec.variable for spec in specs) and sum(spec.width_bits for spec in specs) % 16 == 0


def _runs(header: Header, fields: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return offset and length in bytes of a group's parts; None if those are not whole 16-bit words."""
    runs: list[tuple[int, int]] = []
    for name in fields:
        location = header.location.fields[name]
        if location.native:
            return None
        if runs and runs[-1][0] + runs[-1][1] == location.offset_bits:
            runs[-1] = (runs[-1][0], runs[-1][1] + location.spec.width_bits)
        else:
            runs.append((location.offset_bits, location.spec.width_bits))
    if any(start % 8 or length % 16 for start, length in runs):
        return None
    return [(start // 8, length // 8) for start, length in runs]


def _checksum(routine: Routine, groups: Sequence[Group], payload: tuple[ir.Value, ir.Value] | None) -> ir.Value:
    builder = routine.builder
    turned, straight = u64(0), u64(0)  # sums of 16-bit words in memory's order and in the machine's
    odd: ir.Value | None = None
    for group in groups:
        if group.header is None:
            assert group.constant is not None
            straight = builder.add(straight, u64(_constant_sum(group.constant)))
            continue
        header = header_of(routine, group.header)
        if _is_varbit(routine, group):
            count = builder.select(header.is_valid(), header.varbit_bytes(), u64(0))
            odd = builder.icmp_unsigned("!=", builder.and_(count, u64(1)), u64(0))
            turned = builder.add(turned, sum_words(routine, header.varbit(), count))
            continue
        runs = _runs(header, group.fields)
        total = _field_sum(routine, header, group.fields) if runs is None else _run_sum(routine, header, runs)
        total = builder.select(header.is_valid(), total, u64(0))
        if runs is None:
            straight = builder.add(straight, total)
        else:
            turned = builder.add(turned, total)
    if payload is not None:
        rest = _fold(routine, sum_words(routine, *payload))
        turned = builder.add(_fold(routine, turned), rest if odd is None else _turned_if(routine, odd, rest))
    total = _fold(routine, builder.add(_turned(routine, _fold(routine, turned)), _fold(routine, straight)))
    return builder.xor(total, u64(0xFFFF))


def _turned(routine: Routine, total: ir.Value) -> ir.Value:
    """Return a 16-bit sum with its bytes swapped: the same sum in the other byte order."""
    builder = routine.builder
    return builder.zext(builder.bswap(builder.trunc(total, integer(16))), I64)


def _turned_if(routine: Routine, odd: ir.Value, total: ir.Value) -> ir.Value:
    """Return the sum of what follows an odd number of bytes, where each byte is in the other half of a word."""
    return routine.builder.select(odd, _turned(routine, total), total)


def _constant_sum(constant: SizedConstant) -> int:
    value, total = constant.value, 0
    while value:
        total, value = total + (value & 0xFFFF), value >> 16
    return total


def _run_sum(routine: Routine, header: Header, runs: Sequence[tuple[int, int]]) -> ir.Value:
    total: ir.Value = u64(0)
    for start, length in runs:
        for at, width in chunks(length, widest=4):
            part = routine.load(header.data(start + at), integer(8 * width), "region")
            total = routine.builder.add(total, routine.builder.zext(part, I64))
    return total


def _field_sum(routine: Routine, header: Header, fields: Sequence[str]) -> ir.Value:
    """Return the sum of the 16-bit words of fields at any position: each field's bits are moved to their words."""
    builder = routine.builder
    total: ir.Value = u64(0)
    position = 0
    for name in fields:
        width = header.spec(name).width_bits
        value = header.load(name)
        while width:
            here = min(width, 16 - position % 16)
            part = value if width == here else builder.lshr(value, ir.Constant(value.type, width - here))
            bits = builder.and_(resize(routine, part, 64), u64((1 << here) - 1))
            total = builder.add(total, builder.shl(bits, u64(16 - position % 16 - here)))
            position += here
            width -= here
    return total


def _fold(routine: Routine, total: ir.Value) -> ir.Value:
    """Return a sum with the bits above 16 added to those below, until none are above."""
    builder = routine.builder
    halves = builder.add(builder.and_(total, u64(0xFFFF_FFFF)), builder.lshr(total, u64(32)))
    for _ in range(3):
        halves = builder.add(builder.and_(halves, u64(0xFFFF)), builder.lshr(halves, u64(16)))
    return halves
