"""Several threads on one state: no read-modify-write of a register is torn, in an action or across nodes."""

from __future__ import annotations

import ctypes
import threading

import pytest

from dataplane.native import Module, compile_module, external, kernel, pointer_to, u32, u64
from dataplane.program.objects import RegisterSpec
from dataplane.program.operations import (
    Assign,
    Binary,
    BinaryOp,
    Constant,
    FieldRef,
    Primitive,
    RegisterRead,
    RegisterWrite,
)
from dataplane.switch.abi import Machine, Packet
from dataplane.switch.compiler import emit_program
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tables.native import NativeState
from tests.dataplane.switch.compiler.synthetic import program_with

ROUNDS, THREADS = 200_000, 2
OWN = FieldRef("own", "u13")
READ = RegisterRead(OWN, "r", Constant(1))
ADD = Assign(OWN, Binary(BinaryOp.ADD, OWN, Constant(1)))
WRITE = RegisterWrite("r", Constant(1), OWN)


@external
def p4_ingress(machine: Machine, packet: Packet) -> u32:
    """Run the ingress pipeline."""
    raise NotImplementedError


@kernel(name="ingress_rounds")
def ingress_rounds(machine: Machine, packet: Packet, count: u64) -> None:
    """Run the ingress pipeline again and again."""
    for _ in range(count):
        p4_ingress(machine, packet)


@pytest.mark.parametrize("actions", [[[READ, ADD, WRITE]], [[READ], [ADD], [WRITE]]], ids=["one action", "three nodes"])
def test_every_addition_counts(actions: list[list[Primitive]]) -> None:
    registers = {"other": RegisterSpec("other", 2, 8), "r": RegisterSpec("r", 2, 64)}
    program = program_with(actions, registers=registers)
    module = Module("threads")
    layout = emit_program(program, module, threads=THREADS)
    module.export(ingress_rounds)
    run = compile_module(module, cache_dir=None).bind(ingress_rounds)
    state = ForwardingState(program)
    native = NativeState(state)

    def work() -> None:
        machine, packet = Machine(), Packet()
        region = (ctypes.c_uint8 * layout.region_bytes)()
        packet.region = pointer_to(region)
        native.fill(machine)
        run(machine, packet, ROUNDS)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.registers["r"][1] == ROUNDS * THREADS
