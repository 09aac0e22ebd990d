"""Parsers: bounds, errors, circles, varbits at any bit, value sets."""

from __future__ import annotations

import pytest

from dataplane.program.model import (
    Advance,
    Extract,
    KeyPart,
    Parser,
    ParserOp,
    ParserSet,
    ParserState,
    Transition,
    ValueSetTransition,
    Verify,
)
from dataplane.program.objects import KeyField, MatchKind, ValueSetSpec
from dataplane.program.operations import Binary, BinaryOp, Constant, FieldRef, HeaderRef, Lookahead, StackRef
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.synthetic import OPTIONS, OPTIONS_BITS, WIDE, program_with

BYTES = bytes(range(1, 240))
NEXT = Extract(StackRef("stack"))


def parser(*states: ParserState) -> Parser:
    return Parser("parser", states[0].name, {state.name: state for state in states})


def one_state(*operations: ParserOp) -> Parser:
    return parser(ParserState("start", operations, (), (), None))


def parsed(twin: Twin, data: bytes) -> tuple[int, int]:
    """Return how many bytes were parsed, and the error's code."""
    headers = twin.send(data).steps[0]["parsed"]
    assert isinstance(headers, tuple)
    return headers


def errors(twin: Twin, data: bytes) -> str:
    code = parsed(twin, data)[1]
    return next(name for name, number in twin.compiled.program.errors.items() if number == code)


@pytest.mark.parametrize("length", range(WIDE.fixed_bits // 8 + 22))
def test_every_length_of_a_frame(length: int) -> None:
    twin = Twin(default_code())
    twin.send(BYTES[:length])


def default_code() -> CompiledProgram:
    if not _CODE:
        _CODE.append(CompiledProgram(program_with([])))
    return _CODE[0]


_CODE: list[CompiledProgram] = []


def test_varbits_that_begin_inside_a_byte() -> None:
    code = CompiledProgram(program_with([], parser=one_state(NEXT, Extract(HeaderRef("options"), OPTIONS_BITS))))
    longest = sum(spec.width_bits for spec in OPTIONS.fields) // 8
    for count in range(16):
        twin = Twin(code)
        data = bytes([count << 4, 0]) + BYTES[:40]
        outcome = twin.send(data)
        assert outcome.sent == data
        assert errors(twin, data) == ("NoError" if 2 + count <= longest else "HeaderTooShort")


@pytest.mark.parametrize(("offset", "width"), [(0, 1), (3, 9), (5, 17), (0, 24), (7, 40), (1, 104), (0, 64), (13, 200)])
def test_lookahead_reads_no_byte_too_many(offset: int, width: int) -> None:
    operation = ParserSet(FieldRef("own", "big"), Lookahead(offset, width))
    code = CompiledProgram(program_with([], parser=one_state(operation)))
    for length in range((offset + width + 7) // 8 + 2):
        short = length < (offset + width + 7) // 8
        assert errors(Twin(code), BYTES[:length]) == ("PacketTooShort" if short else "NoError")


def test_a_circle_ends_by_timeout_or_by_the_frame() -> None:
    stay = ParserState("start", (ParserSet(FieldRef("own", "u3"), Constant(1)),), (), (), "start")
    assert errors(Twin(CompiledProgram(program_with([], parser=parser(stay)))), BYTES) == "ParserTimeout"
    onward = ParserState("start", (Advance(Constant(8)),), (), (), "start")
    assert errors(Twin(CompiledProgram(program_with([], parser=parser(onward)))), BYTES) == "PacketTooShort"


def test_a_full_stack_is_an_error() -> None:
    again = ParserState("start", (NEXT,), (), (), "start")
    assert errors(Twin(CompiledProgram(program_with([], parser=parser(again)))), BYTES) == "StackOutOfBounds"


@pytest.mark.parametrize(
    ("bits", "error"), [(-8, "PacketTooShort"), (4, "ParserInvalidArgument"), (1 << 70, "PacketTooShort")]
)
def test_advancing_where_nothing_is(bits: int, error: str) -> None:
    value = Binary(BinaryOp.ADD, FieldRef("own", "u3"), Constant(bits))
    assert errors(Twin(CompiledProgram(program_with([], parser=one_state(Advance(value))))), BYTES) == error


def test_verify_gives_its_own_error() -> None:
    condition = Binary(BinaryOp.EQ, FieldRef("own", "u3"), Constant(1))
    code = CompiledProgram(program_with([], parser=one_state(Verify(condition, Constant(2)))))
    assert errors(Twin(code), BYTES) == "NoMatch"


def selecting() -> CompiledProgram:
    key = (KeyPart(FieldRef("stack[0]", "a"), 4), KeyPart(Lookahead(4, 12), 12))
    transitions = (
        Transition(0x010102, None, "first"),
        Transition(0x010102, None, "second"),
        ValueSetTransition("set", "first"),
        Transition(0x000003, 0x0000FF, "second"),
    )
    states = [
        ParserState("start", (NEXT,), key, transitions, None),
        ParserState("first", (Advance(Constant(8)),), (), (), None),
        ParserState("second", (Advance(Constant(16)),), (), (), None),
    ]
    keys = (KeyField("a", MatchKind.EXACT, 4), KeyField("b", MatchKind.TERNARY, 12))
    value_sets = {"set": ValueSetSpec("set", 4, keys)}
    return CompiledProgram(program_with([], parser=parser(*states), value_sets=value_sets))


def test_select_takes_the_first_case_that_matches() -> None:
    twin = Twin(selecting())
    for state in twin.states:
        state.value_sets["set"].replace(((5, (0x100, 0xF00)),))
    frames = ("10000102", "50000103", "50000203", "50000204", "50100104")
    assert [parsed(twin, bytes.fromhex(frame) + bytes(20))[0] for frame in frames] == [3, 3, 4, 2, 3]
