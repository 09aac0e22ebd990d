"""Checksums computed in place, and a program's checksums, equal the interpreter's."""

from __future__ import annotations

import random
from typing import Any

import pytest

from dataplane.errors import ProgramError
from dataplane.native import Module
from dataplane.program.model import Checksum
from dataplane.program.operations import (
    Assign,
    Binary,
    BinaryOp,
    Calculation,
    Constant,
    FieldRef,
    Hash,
    HeaderRef,
    Payload,
    Primitive,
    SizedConstant,
    Truncate,
    Unary,
    UnaryOp,
)
from dataplane.switch.compiler import emit_program
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.synthetic import WIDE, program_with

LENGTH = WIDE.fixed_bits // 8 + 4
GROUPS: list[list[Any]] = [
    [FieldRef("wide", spec.name) for spec in WIDE.fields],
    [FieldRef("own", "u6"), FieldRef("own", "u9")],
    [SizedConstant(0xFEDCBA98, 32)],
    [HeaderRef("stack[0]")],
    [HeaderRef("other")],
    [FieldRef("wide", name) for name in ("u5", "u4", "u6")],
]
TARGETS = [FieldRef("own", f"u{number}") for number in (6, 9, 12, 13, 14, 16)]


def even_inputs(rng: random.Random) -> tuple[Any, ...]:
    """Return inputs that are mostly whole 16-bit words, perhaps with a varbit and the payload behind them."""
    inputs = [item for group in rng.sample(GROUPS, rng.randint(0, 4)) for item in group]
    if rng.random() < 0.6:
        inputs.append(FieldRef(rng.choice(["options", "spare"]), "v"))
    return (*inputs, Payload()) if rng.random() < 0.5 else tuple(inputs)


@pytest.mark.parametrize("seed", range(12))
def test_internet_checksums(seed: int) -> None:
    rng = random.Random(seed)
    steps = [
        Hash(target, Constant(0), Calculation("sum", "csum16", even_inputs(rng)), Constant(1 << 40))
        for target in TARGETS
    ]
    twin = Twin(CompiledProgram(program_with([steps])))
    for _ in range(12):
        twin.send(rng.randbytes(LENGTH + rng.randint(0, 40)))


def checksum(name: str, *inputs: Any, condition: Any = None) -> Checksum:
    calculation = Calculation(name, "csum16", inputs)
    return Checksum(name, FieldRef("wide", "u6"), calculation, condition, verify=True, update=True)


def test_checksums_are_verified_and_brought_up_to_date() -> None:
    fields = [FieldRef("wide", spec.name) for spec in WIDE.fields if spec.name != "u6"]
    odd = Binary(BinaryOp.EQ, Binary(BinaryOp.AND, FieldRef("wide", "u3"), Constant(1)), Constant(1))
    checksums = (checksum("headers", *fields), checksum("everything", *fields, Payload(), condition=odd))
    cut: list[Primitive] = [Assign(FieldRef("wide", "u4"), Constant(9)), Truncate(Constant(LENGTH + 5))]
    twin = Twin(CompiledProgram(program_with([cut], checksums=checksums)))
    rng = random.Random(1)
    for _ in range(20):
        sent = twin.send(rng.randbytes(LENGTH + 30)).sent
        assert sent is not None
        right = twin.send(sent).steps[0]
        assert "standard_metadata.checksum_error" in right


def test_a_condition_that_may_be_undefined_is_refused() -> None:
    quotient = Binary(BinaryOp.DIV, Constant(8), FieldRef("wide", "u3"))
    condition = Unary(UnaryOp.DATA_TO_BOOL, quotient)
    program = program_with([], checksums=(checksum("odd", FieldRef("wide", "u3"), condition=condition),))
    with pytest.raises(ProgramError, match="undefined in the condition of a checksum"):
        emit_program(program, Module("refused"))
