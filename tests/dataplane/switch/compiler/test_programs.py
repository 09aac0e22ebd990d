"""Every packet has the same outcome in compiled code and in the interpreter, for any bytes and table entries."""

from __future__ import annotations

import functools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall, KeyField, MatchKind, TableSpec
from dataplane.switch.tables import TableEntry
from dataplane.switch.tables.match import prefix_mask
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.interpreter.harness import FABRIC, own_program

NAMES = ("forwarding", "parsing", "copies", "arithmetic", "unions", "p4rt_entities", "fabric")
ETHERNET = bytes.fromhex("020000000001020000000002")
IPV4 = bytes.fromhex("0800450000540001000040119999" + "0a000001" + "0a000002")
PREFIXES = (
    b"",
    ETHERNET + IPV4,
    ETHERNET + bytes.fromhex("0800") + bytes.fromhex("46"),
    ETHERNET + bytes.fromhex("86dd60"),
    ETHERNET + bytes.fromhex("81000001080045"),
    bytes([1, 0x80]),
    bytes([2, 2, 0x45]),
    bytes([3, 0x21]),
    bytes([1, 1, 3]),
)
SETTINGS = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@functools.cache
def compiled(name: str) -> CompiledProgram:
    program = load_program(FABRIC, FABRIC.with_suffix(".p4info.txtpb")) if name == "fabric" else own_program(name)
    return CompiledProgram(program)


def values(width: int) -> st.SearchStrategy[int]:
    top = (1 << width) - 1
    small = st.integers(0, min(3, top))
    return st.one_of(small, st.integers(0, top), st.sampled_from([0, top, min(0x0A000001, top), min(0x0800, top)]))


@st.composite
def field_matches(draw: st.DrawFn, key: KeyField) -> int | tuple[int, int] | None:
    value = draw(values(key.width))
    match key.kind:
        case MatchKind.LPM:
            length = draw(st.integers(0, key.width))
            return value & prefix_mask(key.width, length), length
        case MatchKind.TERNARY:
            mask = draw(values(key.width))
            return value & mask, mask
        case MatchKind.RANGE:
            other = draw(values(key.width))
            return min(value, other), max(value, other)
        case MatchKind.OPTIONAL:
            return draw(st.sampled_from([value, None]))
    return value


@st.composite
def calls(draw: st.DrawFn, spec: TableSpec, program: Program) -> ActionCall:
    name = draw(st.sampled_from(spec.actions))
    return ActionCall(name, tuple(draw(values(width)) for _, width in program.actions[name].parameters))


@st.composite
def entries(draw: st.DrawFn, program: Program) -> list[tuple[str, TableEntry]]:
    """Return a few entries for tables without profile."""
    tables = [spec for spec in program.tables.values() if spec.profile is None and spec.keys and not spec.is_const]
    by_key: dict[tuple[str, object, int], TableEntry] = {}
    for _ in range(draw(st.integers(0, 6)) if tables else 0):
        spec = draw(st.sampled_from(tables))
        match = tuple(draw(field_matches(key)) for key in spec.keys)
        ordered = any(key.kind not in (MatchKind.EXACT, MatchKind.LPM) for key in spec.keys)
        priority = draw(st.integers(1, 1000)) if ordered else 0
        by_key[spec.name, match, priority] = TableEntry(match, priority, call=draw(calls(spec, program)))
    priorities: set[tuple[str, int]] = set()
    kept = []
    for (name, _, priority), entry in by_key.items():
        if priority and (name, priority) in priorities:
            continue  # two entries of one priority may both match: either may win
        priorities.add((name, priority))
        kept.append((name, entry))
    return kept


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    return draw(st.sampled_from(PREFIXES)) + draw(st.binary(max_size=160))


@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(data=st.data())
def test_same_as_the_interpreter(name: str, data: st.DataObject) -> None:
    code = compiled(name)
    twin = Twin(code)
    for table, entry in data.draw(entries(code.program)):
        if twin.states[0].tables[table].get(entry.match, entry.priority) is not None:
            continue  # an entry of the program's own
        for state in twin.states:
            state.tables[table].insert(TableEntry(entry.match, entry.priority, call=entry.call))
    for frame in data.draw(st.lists(frames(), min_size=1, max_size=4)):
        twin.send(frame, data.draw(st.integers(0, 511)))
    twin.check_states()
    twin.compiled.native.release()


def test_what_has_no_room_is_too_long_to_the_byte() -> None:
    twin = Twin(compiled("forwarding"))
    frame = ETHERNET + IPV4 + bytes(60)
    sent = twin.compiled.send(1, frame).sent
    assert sent
    assert twin.compiled.send(1, frame, len(sent)).sent == sent
    assert twin.compiled.send(1, frame, len(sent) - 1).fault == "frame_too_long"
    twin.compiled.native.release()
