"""Any expression equals exact integer arithmetic, in every field that it is stored to."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.errors import ProgramError
from dataplane.native import Module
from dataplane.program.model import Action, CallNode, ConditionNode, Node, Pipeline, Program
from dataplane.program.objects import ActionSpec
from dataplane.program.operations import Assign, Binary, BinaryOp, Constant, Expression, FieldRef, Unary, UnaryOp
from dataplane.switch.compiler import emit_program
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.random_programs import Drawer
from tests.dataplane.switch.compiler.synthetic import SIGNED, WIDE, WIDTHS, program_with

ARGUMENTS = ((5, 3), (0xFFFF, 16), ((1 << 77) - 3, 77), (0, 9))
LENGTH = WIDE.fixed_bits // 8 + 4


def program_of(assignments: list[Assign]) -> Program:
    """Return a program that runs the assignment whose number is the packet's last byte."""
    nodes: dict[str, Node] = {}
    parameters = tuple((f"p{number}", width) for number, (_, width) in enumerate(ARGUMENTS))
    copies = [Assign(FieldRef("own", spec.name), FieldRef("wide", spec.name)) for spec in WIDE.fields[::2]]
    which = FieldRef("stack[1]", "b")
    for number, assignment in enumerate(assignments):
        condition = Binary(BinaryOp.EQ, which, Constant(number))
        following = f"if_{number + 1}" if number + 1 < len(assignments) else None
        nodes[f"if_{number}"] = ConditionNode(f"if_{number}", condition, f"do_{number}", following)
        action = Action(ActionSpec(f"action_{number}", parameters), (*copies, assignment))
        nodes[f"do_{number}"] = CallNode(f"do_{number}", action, tuple(value for value, _ in ARGUMENTS), None)
    return program_with((), ingress=Pipeline("ingress", "if_0", nodes))


def supported(assignments: list[Assign]) -> list[Assign]:
    """Return the supported ones; the compiler refuses excessive integers, which are rare: so halve."""
    try:
        emit_program(program_of(assignments), Module("attempt"))
    except ProgramError as error:
        if "more than 4096 bits" not in error.problem:
            raise
    else:
        return assignments
    half = len(assignments) // 2
    return [*supported(assignments[:half]), *supported(assignments[half:])] if half else []


def contents(rng: random.Random) -> list[bytes]:
    """Return the fields' bytes of some packets: all zero, all ones, the sign bits, and random ones."""
    size = LENGTH - 2
    return [bytes(size), b"\xff" * size, b"\x80" * size, *(rng.randbytes(size) for _ in range(4))]


@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_same_as_exact_integers(seed: int) -> None:
    drawer = Drawer(seed, arguments=len(ARGUMENTS))
    drawn = [Assign(drawer.target(), drawer.data(drawer.rng.randint(1, 4))) for _ in range(30)]
    assignments = supported(drawn)
    assert assignments
    twin = Twin(CompiledProgram(program_of(assignments)))
    for number in range(len(assignments)):
        for content in contents(drawer.rng):
            twin.send(content + number.to_bytes(2, "big") + bytes(20))
    twin.compiled.native.release()


@pytest.mark.parametrize("width", sorted(set(WIDTHS) | set(SIGNED)))
def test_every_field_is_written_without_touching_its_neighbours(width: int) -> None:
    specs = [spec for spec in WIDE.fields if spec.width_bits == width]
    fill = Constant((1 << 130) - 1)
    names = [spec.name for spec in specs]
    twin = Twin(CompiledProgram(program_with([[Assign(FieldRef("wide", name), fill) for name in names]])))
    outcome = twin.send(bytes(LENGTH))
    changed = {
        key.removeprefix("wide.") for key, value in outcome.steps[1].items() if value and key.startswith("wide.")
    }
    assert changed == {*names, "$valid$"}


def nested(depth: int) -> Expression:
    node: Expression = FieldRef("wide", "u16")
    for _ in range(depth):
        node = Binary(BinaryOp.MUL, node, node)
    return node


def test_integers_beyond_reason_are_refused_by_name() -> None:
    compare = Binary(BinaryOp.LT, nested(6), Constant(5))
    action = [Assign(FieldRef("own", "u0"), Unary(UnaryOp.BOOL_TO_DATA, compare))]
    with pytest.raises(ProgramError, match="ingress_action_0: an expression of more than 4096 bits is not supported"):
        emit_program(program_with([action]), Module("refused"))


def test_low_bits_of_huge_integers_are_accepted() -> None:
    twin = Twin(CompiledProgram(program_with([[Assign(FieldRef("own", "u16"), nested(6))]])))
    twin.send(bytes(range(1, LENGTH + 1)))
