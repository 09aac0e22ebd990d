"""State that a fresh packet may keep from the previous one: only values written before read on every path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dataplane.program.model import CallNode, ConditionNode, Pipeline, Program
from dataplane.program.objects import RegisterSpec
from dataplane.program.operations import (
    AddHeader,
    Assign,
    AssignHeader,
    Binary,
    BinaryOp,
    Constant,
    FieldRef,
    HeaderRef,
    Jump,
    JumpIfZero,
    Primitive,
    RegisterRead,
)
from dataplane.switch.compiler.analysis.clear_elision import uncleared
from dataplane.switch.compiler.lowering.layout import Layout
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.synthetic import chain, program_with

U8, U16, SOURCE = FieldRef("own", "u3"), FieldRef("own", "u6"), FieldRef("wide", "u3")
WRITE = Assign(U8, Constant(7))
READ = Assign(U16, U8)
FIRST = Assign(FieldRef("other", "u6"), U8)
REGISTERS = {"r": RegisterSpec("r", size=4, width=8)}


def unseen(*actions: Sequence[Primitive], **changes: Any) -> bool:
    return U8 in uncleared(program_with(actions, registers=REGISTERS, **changes)).fields


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ([[WRITE]], True),
        ([[WRITE, READ]], True),
        ([[WRITE], [READ]], True),
        ([[READ]], False),
        ([[READ, WRITE]], False),
        ([[READ], [WRITE]], False),
        ([[Assign(U8, Binary(BinaryOp.ADD, U8, Constant(1)))]], False),
        ([[JumpIfZero(SOURCE, 2), WRITE, READ]], False),
        ([[JumpIfZero(SOURCE, 3), WRITE, Jump(4), Assign(U8, Constant(9)), READ]], True),
        ([[Jump(2), WRITE, READ]], False),
        ([[RegisterRead(U8, "r", SOURCE), READ]], False),
        ([[RegisterRead(U8, "r", Constant(4)), READ]], False),
        ([[RegisterRead(U8, "r", Constant(3)), READ]], True),
    ],
)
def test_field_is_unseen_if_written_before_read_on_every_path(
    actions: Sequence[Sequence[Primitive]], expected: bool
) -> None:
    assert unseen(*actions) is expected


@pytest.mark.parametrize("writes_in_both", [True, False])
def test_ways_that_meet_must_both_have_written(writes_in_both: bool) -> None:
    nodes = chain("ingress", [[WRITE], [WRITE if writes_in_both else Assign(U16, Constant(1))], [READ]]).nodes
    first, second = nodes["call_0"], nodes["call_1"]
    assert isinstance(first, CallNode)
    assert isinstance(second, CallNode)
    fork = ConditionNode("fork", Binary(BinaryOp.EQ, SOURCE, Constant(1)), "call_0", "call_1")
    joined = {**nodes, "fork": fork, "call_0": replace(first, next_node="call_2")}
    assert (U8 in uncleared(program_with([], ingress=Pipeline("ingress", "fork", joined))).fields) is writes_in_both


def test_what_ingress_writes_for_egress_is_seen() -> None:
    assert not unseen([WRITE], egress=chain("egress", [[READ]]))


def test_what_a_copy_of_the_packet_keeps_is_seen() -> None:
    assert not unseen([WRITE], field_lists={1: (U8,)})


def header_program(*primitives: Primitive) -> Program:
    return program_with([primitives])


def test_a_header_that_is_only_written_copied_and_sent_is_unseen() -> None:
    program = header_program(AddHeader(HeaderRef("other")), Assign(FieldRef("other", "u3"), SOURCE))
    assert "other" in uncleared(program).headers
    assert "wide" not in uncleared(program).headers
    assert "wide" in uncleared(header_program(AssignHeader(HeaderRef("other"), HeaderRef("wide")))).headers


def test_one_element_that_is_read_shows_the_whole_stack() -> None:
    none = {name for name in uncleared(header_program(Assign(U8, SOURCE))).headers if name.startswith("stack")}
    assert none == set()  # its last element gives the options' length
    alone = replace(header_program(), parser=replace(header_program().parser, states={}, initial=None))
    assert "stack[0]" in uncleared(alone).headers
    read = replace(alone, ingress=chain("ingress", [[Assign(U8, FieldRef("stack[1]", "a"))]]))
    assert not {"stack[0]", "stack[1]", "stack[2]"} & uncleared(read).headers


def test_what_is_not_cleared_lies_behind_what_is() -> None:
    program = header_program(WRITE, READ, AddHeader(HeaderRef("other")))
    layout = Layout(program)
    own = layout.headers["own"]
    assert own.data + own.fields["u3"].offset_bits // 8 >= layout.plain_bytes
    assert layout.fresh_bytes <= layout.headers["other"].data < layout.plain_bytes
    assert layout.headers["wide"].data < layout.fresh_bytes or "wide" in uncleared(program).headers


def test_memory_used_before_changes_nothing() -> None:
    steps: list[Primitive] = [JumpIfZero(SOURCE, 2), WRITE, READ, FIRST, AddHeader(HeaderRef("other")), FIRST]
    twin = Twin(CompiledProgram(program_with([steps, [WRITE, READ]])))
    for length in range(0, 120, 7):
        twin.send(bytes(length))
        twin.send(bytes([255]) * length)
