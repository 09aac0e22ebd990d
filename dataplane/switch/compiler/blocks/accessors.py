"""Emits the switch's operations on a packet's metadata: getters, setters, reset, copy, and what a copy keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from dataplane.program.operations import FieldRef
from dataplane.switch.abi import Packet
from dataplane.switch.compiler.analysis.ranges import machine_bits
from dataplane.switch.compiler.blocks.deparser import emit_verification, header_bytes
from dataplane.switch.compiler.lowering.copies import copy_field, copy_varbit
from dataplane.switch.compiler.lowering.fields import Header, header_of, resize
from dataplane.switch.compiler.lowering.routine import I32, I64, POINTER, Emission, Routine, u32, u64

_QUEUEING = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")

_STRUCTS = {
    "ingress_port": "standard_metadata",
    "egress_port": "standard_metadata",
    "egress_spec": "standard_metadata",
    "packet_length": "standard_metadata",
    "instance_type": "standard_metadata",
    "parser_error": "standard_metadata",
    "checksum_error": "standard_metadata",
    "mcast_grp": "intrinsic_metadata",
    "priority": "intrinsic_metadata",
    "egress_rid": "intrinsic_metadata",
    "ingress_global_timestamp": "intrinsic_metadata",
    "egress_global_timestamp": "intrinsic_metadata",
    **dict.fromkeys((*_QUEUEING, "qid"), "queueing_metadata"),
}
"""The fields that the switch reads or writes, and bmv2's struct for each."""

Declare = Callable[[str, ir.Type, Sequence[ir.Type]], ir.Function]


def emit_accessors(emission: Emission, declare: Declare) -> None:
    """Emit p4_set_NAME, p4_get_NAME, p4_reset, p4_copy, p4_keep, p4_note_errors and p4_emitted_bytes."""
    for name in _STRUCTS:
        _emit_setter(emission, declare(f"p4_set_{name}", ir.VoidType(), [POINTER, POINTER, I64]), name)
        _emit_getter(emission, declare(f"p4_get_{name}", I64, [POINTER, POINTER]), name)
    _emit_reset(emission, declare("p4_reset", ir.VoidType(), [POINTER, POINTER]))
    _emit_copy(emission, declare("p4_copy", ir.VoidType(), [POINTER, POINTER, POINTER]))
    _emit_keep(emission, declare("p4_keep", ir.VoidType(), [POINTER, POINTER, POINTER, I32, I32]))
    _emit_note_errors(emission, declare("p4_note_errors", ir.VoidType(), [POINTER, POINTER]))
    _emit_emitted_bytes(emission, declare("p4_emitted_bytes", I32, [POINTER, POINTER]))


def _find(emission: Emission, name: str) -> FieldRef | None:
    """Return a field that the switch uses, if the program has it; those about queues exist together or not at all."""
    program = emission.program
    if _STRUCTS[name] == "queueing_metadata":
        if any(program.find_field(f"queueing_metadata.{other}") is None for other in _QUEUEING):
            return None
        return program.find_field(f"queueing_metadata.{name}")
    if name in ("ingress_port", "egress_port", "egress_spec", "packet_length", "instance_type"):
        return FieldRef("standard_metadata", name)
    return program.find_field(f"{_STRUCTS[name]}.{name}")


def _set(routine: Routine, ref: FieldRef | None, value: ir.Value) -> None:
    """Set a field to the lowest bits of an unsigned value."""
    if ref is not None:
        header = header_of(routine, ref)
        bits = machine_bits(header.spec(ref.field).width_bits)
        header.store(ref.field, resize(routine, value, bits))


def _finish(routine: Routine, result: ir.Value | None = None) -> None:
    """End a function that cannot fault."""
    builder = routine.builder
    if result is None:
        builder.ret_void()
    else:
        builder.ret(result)
    builder.position_at_end(routine.end)
    builder.unreachable()


def _emit_setter(emission: Emission, function: ir.Function, name: str) -> None:
    routine = Routine(emission, function, name)
    _set(routine, _find(emission, name), function.args[2])
    _finish(routine)


def _emit_getter(emission: Emission, function: ir.Function, name: str) -> None:
    routine, ref = Routine(emission, function, name), _find(emission, name)
    value: ir.Value = u64(0)
    if ref is not None:
        value = resize(routine, header_of(routine, ref).load(ref.field), 64)
    _finish(routine, value)


def _emit_reset(emission: Emission, function: ir.Function) -> None:
    routine = Routine(emission, function, "headers")
    routine.clear(routine.region, emission.layout.fresh_bytes)
    _finish(routine)


def _emit_copy(emission: Emission, function: ir.Function) -> None:
    routine = Routine(emission, function, "headers")
    target = routine.load_member(Packet, function.args[2], "region")
    routine.copy(target, routine.region, emission.layout.plain_bytes, ("region", "region"))
    for location in emission.layout.headers.values():
        if location.length is not None:
            copy_varbit(Header(routine, location, base=target), Header(routine, location))
    _finish(routine)


def _emit_keep(emission: Emission, function: ir.Function) -> None:
    """Emit `p4_keep` (machine, source, target, list, instance type)."""
    routine = Routine(emission, function, "field_lists")
    builder = routine.builder
    source_region, target_region = routine.region, routine.load_member(Packet, function.args[2], "region")
    routine.clear(target_region, emission.layout.metadata_bytes)
    last = routine.block()
    switch = builder.switch(function.args[3], last)
    for number, refs in emission.program.field_lists.items():
        block = routine.block()
        switch.add_case(u32(number), block)
        builder.position_at_end(block)
        for ref in refs:
            _copy_between(routine, source_region, target_region, ref)
        builder.branch(last)
    builder.position_at_end(last)
    routine.region = target_region
    _set(routine, _find(emission, "instance_type"), function.args[4])
    _finish(routine)


def _copy_between(routine: Routine, source_region: ir.Value, target_region: ir.Value, ref: FieldRef) -> None:
    location = routine.layout.headers[ref.header]
    source = Header(routine, location, base=source_region)
    copy_field(Header(routine, location, base=target_region), source, ref.field)


def _emit_note_errors(emission: Emission, function: ir.Function) -> None:
    routine = Routine(emission, function, "checksums")
    _set(routine, _find(emission, "parser_error"), routine.packet_field("parser_error"))
    holds = emit_verification(routine)
    if routine.faults:
        raise routine.refuse("a division or shift that may be undefined in the condition of a checksum")
    _set(routine, _find(emission, "checksum_error"), routine.builder.sub(u32(1), holds))
    _finish(routine)


def _emit_emitted_bytes(emission: Emission, function: ir.Function) -> None:
    routine = Routine(emission, function, emission.program.deparser.name)
    _finish(routine, header_bytes(routine))
