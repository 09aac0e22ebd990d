"""Parts of a packet that the switch reads and writes, and those kept by its copies."""

from __future__ import annotations

import ctypes

import pytest

from dataplane.native import pointer_to
from dataplane.program.operations import Assign, FieldRef
from dataplane.switch.abi import Packet
from tests.dataplane.switch.compiler.both_pipelines import Compiled, CompiledProgram, State, Twin
from tests.dataplane.switch.compiler.synthetic import WIDE, program_with
from tests.dataplane.switch.interpreter.harness import own_program

LENGTH = WIDE.fixed_bits // 8 + 4
FIELDS = (FieldRef("own", "u16"), FieldRef("own", "s1"), FieldRef("wide", "u3"), FieldRef("options", "v"))
NAMES = ("ingress_port", "egress_port", "egress_spec", "packet_length", "instance_type", "parser_error")


def other_packet(compiled: Compiled) -> tuple[Packet, ctypes.Array[ctypes.c_uint8]]:
    packet, region = Packet(), (ctypes.c_uint8 * len(compiled.region))()
    ctypes.memset(region, 0x77, len(region))
    packet.region = pointer_to(region)
    return packet, region


def with_a_meaning(compiled: Compiled) -> State:
    """Return all visible parts of a packet."""
    state = compiled.read()
    return {name: value for name, value in state.items() if name not in compiled.compiled.unseen(state)}


def test_keep_resets_metadata_but_for_a_list() -> None:
    reading = Assign(FieldRef("own", "u6"), FieldRef("own", "u3"))
    twin = Twin(CompiledProgram(program_with([[reading]], field_lists={3: FIELDS, 4: ()})))
    compiled = twin.compiled
    twin.send(bytes([0x31]) * (LENGTH + 10))
    source, before = compiled.packet, compiled.read()
    target, region = other_packet(compiled)
    compiled._keep(compiled.machine.address, source.address, target.address, 3, 6)
    compiled.packet, compiled.region = target, region
    kept = with_a_meaning(compiled)
    listed = {f"{ref.header}.{ref.field}" for ref in FIELDS}
    assert {name: kept[name] for name in listed} == {name: before[name] for name in listed}
    others = {name: value for name, value in kept.items() if name.startswith(("own.", "standard_metadata."))}
    assert "own.u3" in others
    changed = {name: value for name, value in others.items() if value and name not in listed and "$valid$" not in name}
    assert changed == {"standard_metadata.instance_type": 6}
    assert compiled.read()["other.u3"] == 0x77


def test_copy_takes_everything_with_it() -> None:
    twin = Twin(CompiledProgram(program_with([])))
    compiled = twin.compiled
    twin.send(bytes([0x31]) * (LENGTH + 10))
    before = with_a_meaning(compiled)
    target, region = other_packet(compiled)
    compiled._copy(compiled.machine.address, compiled.packet.address, target.address)
    compiled.region = region
    assert with_a_meaning(compiled) == before
    assert before["options.length"] == 24


@pytest.mark.parametrize("name", NAMES)
def test_fields_are_set_and_read_cut_to_their_width(name: str) -> None:
    compiled = Twin(CompiledProgram(own_program("copies"))).compiled
    compiled._start(0, b"", 0)
    compiled.set(name, (1 << 64) - 1)
    width = next(
        spec.width_bits for spec in compiled.program.headers["standard_metadata"].type.fields if spec.name == name
    )
    assert compiled.get(name) == (1 << width) - 1


def test_fields_that_the_program_lacks_are_zero() -> None:
    compiled = Twin(CompiledProgram(program_with([]))).compiled
    compiled._start(0, b"", 0)
    compiled.set("priority", 5)
    assert compiled.get("priority") == 0
