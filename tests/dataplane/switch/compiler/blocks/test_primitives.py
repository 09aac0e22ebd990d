"""Any sequence of primitives has the same effect on packet and state as in the interpreter.

MILLRACE_EXAMPLES sets the number of programs, 8 if it is not given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dataplane.errors import ProgramError
from dataplane.program.model import Digest
from dataplane.program.objects import CounterSpec, DigestSpec, MeterSpec, MeterUnit, RegisterSpec
from dataplane.program.operations import (
    ArgumentRef,
    Assign,
    Constant,
    FieldRef,
    GenerateDigest,
    Jump,
    LogMessage,
    NoOp,
    SizedConstant,
)
from dataplane.switch.tables import MeterConfig
from tests.dataplane.switch.compiler.both_pipelines import CompiledProgram, Twin
from tests.dataplane.switch.compiler.random_programs import Drawer
from tests.dataplane.switch.compiler.synthetic import WIDE, chain, program_with
from tests.examples import examples

EXAMPLES = examples(5)
LENGTH = WIDE.fixed_bits // 8 + 4
OBJECTS: dict[str, Any] = {
    "counters": {"c": CounterSpec("c", 5)},
    "registers": {"r": RegisterSpec("r", 3, 32), "odd": RegisterSpec("odd", 4, 77)},
    "meters": {"m": MeterSpec("m", 2, MeterUnit.BYTES)},
    "digests": {
        "d": Digest(
            DigestSpec("d", (("a", 8), ("b", 128), ("c", 9))),
            (FieldRef("wide", "u3"), FieldRef("wide", "u16"), SizedConstant(300, 9)),
        )
    },
    "field_lists": {0: (), 7: (FieldRef("own", "u16"), FieldRef("wide", "u3"), FieldRef("own", "s1"))},
}


@pytest.mark.parametrize("threads", [1, 2])
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_same_as_the_interpreter(threads: int, seed: int) -> None:
    drawer = Drawer(seed)
    ingress = [drawer.action() for _ in range(drawer.rng.randint(1, 8))]
    egress = chain("egress", [drawer.action(jumps=False)[:3]])
    program = program_with(ingress, **OBJECTS, egress=egress)
    primitives = tuple(drawer.primitive() for _ in range(drawer.rng.randint(0, 2)))
    program = replace(program, deparser=replace(program.deparser, primitives=primitives))
    try:
        twin = Twin(CompiledProgram(program, threads=threads))
    except ProgramError as error:
        assume(" bits is not supported" not in error.problem)
        raise
    for state in twin.states:
        state.meters["m"].write(0, MeterConfig(1, 250, 1, 500))
    for _ in range(6):
        twin.send(drawer.rng.randbytes(LENGTH - 4 + drawer.rng.randint(0, 70)))
    twin.check_states()
    assert not any(twin.compiled.native._register_locks)
    twin.compiled.native.release()


def test_arguments_of_any_width_reach_the_action() -> None:
    arguments = ((5, 3), ((1 << 77) - 3, 77), (9, 64), (0xBEEF, 16))
    steps = [Assign(FieldRef("own", f"u{number}"), ArgumentRef(index)) for index, number in enumerate((0, 16, 13, 6))]
    twin = Twin(CompiledProgram(program_with([steps], arguments=arguments)))
    step = twin.send(bytes(LENGTH)).steps[1]
    assert (step["own.u16"], step["own.u13"], step["own.u6"]) == ((1 << 77) - 3, 9, 0xBEEF)


def test_an_action_that_never_ends_is_a_fault() -> None:
    twin = Twin(CompiledProgram(program_with([[NoOp(), Jump(0)]])))
    assert twin.send(bytes(LENGTH)).fault == "action_too_long"


def test_a_digest_has_the_values_of_the_end_of_ingress() -> None:
    twin = Twin(
        CompiledProgram(program_with([[GenerateDigest("d"), Assign(FieldRef("wide", "u3"), Constant(200))]], **OBJECTS))
    )
    twin.send(bytes(LENGTH))
    values = twin.interpreted.pipeline.take_digests()[0].values
    assert list(twin.compiled.words[:7]) == [7, 0, 0, values[0], values[1] & ~0 >> 64, values[1] >> 64, values[2]]
    assert values[0] == 200
    assert twin.compiled.ring.head == 7


def test_a_full_ring_counts_digests() -> None:
    twin = Twin(CompiledProgram(program_with([[GenerateDigest("d")]], **OBJECTS)))
    for _ in range(200):
        twin.compiled.send(1, bytes(LENGTH))
    kept = 1024 // 7
    assert (twin.compiled.ring.dropped, twin.compiled.ring.head) == (200 - kept, 7 * kept)
    assert sum(twin.compiled.drops) == 200 - kept


def test_a_log_message_is_written_only_while_somebody_reads() -> None:
    message = LogMessage(("a", "b", ""), (Constant(-3), FieldRef("wide", "u3")))
    twin = Twin(CompiledProgram(program_with([[message]])))
    twin.send(bytes(LENGTH))
    assert list(twin.compiled.words[:5]) == [5, 1, 0, (1 << 64) - 3, 0]
    twin.compiled.machine.log_enabled = 0
    twin.send(bytes(LENGTH))
    assert twin.compiled.ring.head == 5
    assert [text.values for text in twin.compiled.compiled.layout.log_messages] == [((1, True), (1, False))]
