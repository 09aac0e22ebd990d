"""Selection of the nodes that run with registers held."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.program.atomic import register_sections
from dataplane.program.loader import load_program
from dataplane.program.model import Action, CallNode, ConditionNode, Node, Pipeline
from dataplane.program.objects import ActionSpec
from dataplane.program.operations import Constant, FieldRef, Primitive, RegisterRead, RegisterWrite, Truth
from tests.dataplane.program.mutation import PROGRAMS, p4info

BUILD = Path(__file__).parents[3] / "p4" / "build"
TARGET = FieldRef("meta", "value")


def call(name: str, following: str | None, **touched: str) -> CallNode:
    """Return a call that reads (r), writes (w) or does both (rw) to registers, in that order."""
    primitives: list[Primitive] = []
    for register, how in touched.items():
        primitives += [RegisterRead(TARGET, register, Constant(0))] if "r" in how else []
        primitives += [RegisterWrite(register, Constant(0), TARGET)] if "w" in how else []
    return CallNode(name, Action(ActionSpec(name, ()), tuple(primitives)), (), following)


def branch(name: str, true_next: str | None, false_next: str | None) -> ConditionNode:
    return ConditionNode(name, Truth(value=True), true_next, false_next)


def sections(*nodes: Node) -> set[tuple[str, str]]:
    """Return sections as (registers, nodes), each joined."""
    pipeline = Pipeline("ingress", nodes[0].name, {node.name: node for node in nodes})
    registers = register_sections(pipeline)
    return {(" ".join(sorted(item.registers)), " ".join(sorted(item.nodes))) for item in registers}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([call("a", None, x="rw")], set()),
        ([call("a", "b", x="r"), call("b", None, x="w")], {("x", "a b")}),
        ([call("a", "b", x="w"), call("b", None, x="r")], set()),
        ([call("a", "b", x="r"), call("b", None, y="w")], set()),
        ([call("a", "b", x="r"), branch("b", "c", "d"), call("c", None), call("d", None, x="w")], {("x", "a b d")}),
        (
            [call("a", "b", x="r"), branch("b", "c", "d"), call("c", "d"), call("d", "e", x="w"), call("e", None)],
            {("x", "a b c d")},
        ),
        ([call("a", "b", x="r"), call("b", "c", y="rw"), call("c", None, x="w")], {("x y", "a b c")}),
        (
            [
                call("a", "b", x="r"),
                call("b", "c", y="r"),
                call("c", "d", x="w"),
                call("d", "e", y="w"),
                call("e", None, z="rw"),
            ],
            {("x y", "a b c d")},
        ),
        (
            [call("a", "b", x="r"), call("b", "c", x="w"), call("c", "d", y="r"), call("d", None, y="w")],
            {("x", "a b"), ("y", "c d")},
        ),
        (
            [
                call("a", "b", x="r"),
                call("b", "c", x="w"),
                call("c", "d", y="r"),
                call("d", "e", y="w"),
                call("e", None, x="r"),
            ],
            {("x y", "a b c d e")},
        ),
        ([branch("a", "b", "c"), call("b", None, x="r"), call("c", None, x="w")], set()),
    ],
    ids=[
        "one action",
        "read, then write",
        "write, then read",
        "two registers",
        "a way round it",
        "over a branch",
        "one inside of another",
        "interleaved",
        "one after the other",
        "read again behind another",
        "never both",
    ],
)
def test_sections(nodes: list[Node], expected: set[tuple[str, str]]) -> None:
    assert sections(*nodes) == expected


def test_atomic_blocks_of_a_program() -> None:
    """One of stateful.p4's @atomic blocks is one action, which needs no section; the other one has a branch in it."""
    program = load_program(PROGRAMS / "stateful.json", p4info("stateful"))
    [section] = register_sections(program.ingress)
    assert section.registers == {"Inbound.sums"}
    inside = [program.ingress.nodes[name] for name in section.nodes]
    assert sum(isinstance(node, ConditionNode) for node in inside) == 1
    assert {name for node in inside if isinstance(node, CallNode) for name in node.action.registers} == {"Inbound.sums"}


def test_only_gathering_reports_holds_registers_across_actions() -> None:
    """Only copies that become reports come into that section: every other packet reads one alarm, in an action."""
    program = load_program(BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb")
    assert register_sections(program.ingress) == ()
    [section] = register_sections(program.egress)
    held = {register.removeprefix("FabricEgress.gather.gathered_") for register in section.registers}
    assert held == {"records", "words", "waiting", "due"}
    readers = {name for name in program.egress.nodes if "hear" in name}
    assert readers
    assert not readers & section.nodes
